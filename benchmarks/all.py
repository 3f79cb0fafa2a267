"""Measure everything that the pages quote, save it in results.json, and write the figures into the pages.

    python benchmarks/all.py --peers PYTHON [--only SCRIPT ...]

Commit first, and let nothing else run. It takes about 45 minutes on two idle cores. --logs keeps the scripts' output.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from alone import HERE

SCRIPTS: dict[str, tuple[tuple[str, ...], bool]] = {
    "first_train.py": ((), False),
    "update.py": (("--rounds", "15"), True),
    "update.py first": (("--cell", "rows", "--cell", "growth", "--cell", "first"), False),
    "train_cartpole.py": (("--seeds", "5"), True),
    "train_dqn.py": (("--seeds", "5"), True),
    "train_bc.py": (("--seeds", "5"), False),
    "checkpoint.py": ((), True),
    "crash_save.py": ((), False),
    "soak.py": ((), False),
    "learner_group.py": (("--rounds", "9"), True),
    "exchanges.py": ((), False),
}
"""`{script: (arguments, whether the peers take part)}`; a second run of a script has a word after its name."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", required=True, metavar="PYTHON", help="with requirements-peers.txt")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), metavar="SCRIPT")
    parser.add_argument("--logs", type=Path, default=Path("runs/benchmarks"))
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.only:
        arguments, with_peers = SCRIPTS[name]
        peers = ("--peers", options.peers) if with_peers else ()
        command = [sys.executable, str(HERE / name.split()[0]), *arguments, *peers, "--save"]
        log = options.logs / f"{name.replace(' ', '-')}.md"
        start = perf_counter()
        with log.open("w") as file:
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
        print(
            f"{name}: {'failed' if code else 'done'} after {perf_counter() - start:.0f} s, see {log}",
            flush=True,
        )
        failed += [name] if code else []
    if not failed:
        subprocess.run([sys.executable, str(HERE / "quotes.py")], check=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
