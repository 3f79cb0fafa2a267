"""Time for processes on two machines to sum an array: `exchanges.py` on two network namespaces of this machine.

    sudo python benchmarks/exchanges_apart.py --rounds 9

The wire between them is a relay in Python (tests/wire.py): it is slow, and equally slow for all.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from alone import HERE, environment

sys.path.insert(0, str(HERE.parent / "tests"))

from two_machines import ADDRESSES, GCS_PORT, TwoMachines, why_not


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if reason := why_not():
        parser.error(reason)
    os.environ.update(environment(GLOO_SOCKET_IFNAME="wire0"))
    with TemporaryDirectory(prefix="pg-") as folder, TwoMachines(Path(folder)) as machines:
        script = [sys.executable, str(HERE / "exchanges.py"), "--address", f"{ADDRESSES[0]}:{GCS_PORT}"]
        words = [*script, "--processes", "2", "--rounds", str(given.rounds)]
        subprocess.run(machines.command(0, words), env=machines.environment, check=True)


if __name__ == "__main__":
    main()
