"""What starting costs: processor time of whole processes, in turn.

    python benchmarks/start.py --rounds 15 --save

Each round starts every program once, in every other round in the opposite order.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import record
from alone import environment
from report import machine, table

PLUGRAD = str(Path(sys.executable).with_name("plugrad"))
PROGRAMS = {
    "bare Python": [sys.executable, "-c", "pass"],
    "import numpy": [sys.executable, "-c", "import numpy"],
    "import numpy, plugrad": [sys.executable, "-c", "import numpy, plugrad"],
    "a PPOConfig": [sys.executable, "-c", "from plugrad_ppo import PPOConfig; PPOConfig()"],
    "plugrad --help": [PLUGRAD, "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
    "import tensorflow": [sys.executable, "-c", "import tensorflow"],
    "import jax": [sys.executable, "-c", "import jax"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    record.add_options(parser)
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for n in range(given.rounds + 1):
        for name in list(PROGRAMS)[:: 1 if n % 2 else -1]:
            taken = processor_time(PROGRAMS[name])
            if n:  # the first round fills caches
                seconds[name].append(taken)
    print(machine(), "\n")
    rows = [[name, f"{median(each):.3f}", f"{min(each):.3f}"] for name, each in seconds.items()]
    print(table(["program", "median s", "best s"], rows))
    for more, base in (("import numpy, plugrad", "import numpy"), ("plugrad --help", "bare Python")):
        gaps = [one - other for one, other in zip(seconds[more], seconds[base], strict=True)]
        print(f"\n{more} beyond {base}: {median(gaps):.3f} s, median of rounds")
    record.save(given.save, "start", {f"{name} s": median(each) for name, each in seconds.items()})


def processor_time(command: list[str]) -> float:
    """Run a command to its end. Returns the seconds that processors worked for it."""
    before = os.times()
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    main()
