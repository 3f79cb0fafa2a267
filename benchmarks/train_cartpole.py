"""CartPole-v1 to a mean return of 475 over the last 20 training episodes: seconds and steps, beside stable-baselines3.

`python benchmarks/train_cartpole.py --peers PYTHON [--seeds 5]`. Each run has a pinned process, with one thread.
"""

import argparse
import json
import sys
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from alone import run_alone
from report import machine, table

RUNS = {
    "plugrad torch, rl-zoo settings": ("cartpole_plugrad.py", "torch", "zoo"),
    "plugrad tf2, rl-zoo settings": ("cartpole_plugrad.py", "tf2", "zoo"),
    "plugrad torch, its defaults": ("cartpole_plugrad.py", "torch", "default"),
    "plugrad tf2, its defaults": ("cartpole_plugrad.py", "tf2", "default"),
    "stable-baselines3, rl-zoo settings": ("cartpole_sb3.py",),
}
SB3 = "stable-baselines3, rl-zoo settings"


def run_all(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Every kind of run with every seed, the kinds taking turns."""
    kinds = [name for name in RUNS if name != SB3 or options.peers]
    if len(kinds) < len(RUNS):
        print("stable-baselines3 left out: give --peers PYTHON, the interpreter of its venv\n")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    for seed in range(options.seeds):
        for name in kinds:
            script, *arguments = RUNS[name]
            python = options.peers if name == SB3 else sys.executable
            result = run_alone(script, *arguments, seed, core=options.core, python=python)
            found[name].append(result)
            print(f"{name}, seed {seed}: {_in_words(result)}", flush=True)
    return found


def _in_words(result: dict[str, Any]) -> str:
    said = "solved" if result["solved"] else "NOT solved"
    return f"{said}, {result['seconds']:.1f} s, {result['steps']} steps ({result['mode']})"


def _median(results: list[dict[str, Any]], key: str) -> float:
    """Over the seeds; a run that was not solved counts as infinite."""
    return median(each[key] if each["solved"] else inf for each in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peers", metavar="PYTHON", help="interpreter of the venv with requirements-peers.txt"
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    print(machine(), "\n")
    found = run_all(options)
    theirs = _median(found[SB3], "seconds") if SB3 in found else None
    lines = []
    for name, results in found.items():
        seconds = _median(results, "seconds")
        lines.append(
            [
                name,
                f"{sum(each['solved'] for each in results)} of {len(results)}",
                f"{seconds:.1f}",
                f"{_median(results, 'learning'):.1f}",
                f"{_median(results, 'steps'):.0f}",
                "" if theirs is None else f"{seconds / theirs:.2f}",
            ]
        )
    print()
    print(table(["medians over seeds", "solved", "seconds", "of it learning", "steps", "to sb3"], lines))
    print("\nTargets: torch 1.0, tf2 0.5 of stable-baselines3's seconds.")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "runs": found}, indent=1))


if __name__ == "__main__":
    main()
