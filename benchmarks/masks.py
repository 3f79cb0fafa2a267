"""PPO with action masks beside MaskablePPO, on sb3-contrib's own environments: mean evaluation returns while training.

`python benchmarks/masks.py --peers PYTHON [--seeds 3]`. Both have the same settings. A policy that always takes the
rewarded action has a return of 100. Each run has a pinned process, with one thread.
"""

import argparse
import subprocess
import sys
from statistics import mean
from typing import Any

from alone import run_alone
from report import machine, table

ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Discrete": ("InvalidActionEnvDiscrete", {"dim": 40, "n_invalid_actions": 30}),
    "MultiDiscrete": ("InvalidActionEnvMultiDiscrete", {"dims": [10, 10], "n_invalid_actions": 12}),
    "MultiBinary": ("InvalidActionEnvMultiBinary", {"dims": 10, "n_invalid_actions": 6}),
}
LR = 1e-3
GAMMA = 0.4
STEPS = 256
"""Environment steps of one update."""
BATCH_SIZE = 64
EPOCHS = 10
HIDDENS = [64, 64]
EVALUATE_AFTER = (2, 4, 8, 16)
"""Updates."""
EPISODES = 5

RUNS = {
    "plugrad torch": ("masks_plugrad.py", "torch"),
    "plugrad tf2": ("masks_plugrad.py", "tf2"),
    "MaskablePPO": ("masks_sb3.py",),
}


def main() -> None:
    """Run all and print a line for each environment and library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", required=True, help="interpreter with sb3-contrib")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to N-1")
    parser.add_argument("--core", type=int, default=0)
    options = parser.parse_args()
    print(machine(), "\n")
    packages = subprocess.run(
        [options.peers, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    lines = []
    for kind in ENVIRONMENTS:
        for name, (script, *arguments) in RUNS.items():
            python = options.peers if name == "MaskablePPO" else sys.executable
            found = [
                run_alone(script, *arguments, kind, packages, seed, core=options.core, python=python)
                for seed in range(options.seeds)
            ]
            curve = [mean(values) for values in zip(*(each["returns"] for each in found), strict=True)]
            seconds = mean(each["seconds"] for each in found)
            lines.append([kind, name, *(f"{value:.1f}" for value in curve), f"{seconds:.1f}"])
            print(*lines[-1], flush=True)
    steps = [f"{updates * STEPS} steps" for updates in EVALUATE_AFTER]
    print()
    print(table(["environment", "mean over seeds", *steps, "seconds"], lines))


if __name__ == "__main__":
    main()
