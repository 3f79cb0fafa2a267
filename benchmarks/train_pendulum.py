"""PPO on Pendulum with RLtools' settings, 300,000 steps: seconds beside RLtools and stable-baselines3.

`python benchmarks/train_pendulum.py --rltools BINARY --peers PYTHON [--rounds 3]`; `pendulum_rltools.cpp` says how
BINARY is built. All runs of a round have the same seed and the same core, one after the other, every other round in
the opposite order; a round before them fills caches. "whole process" is processor time with start and imports.
"""

import argparse
import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from alone import HERE, environment
from report import machine, table

PLUGRAD = "pendulum_plugrad.py"
RLTOOLS, SB3 = "RLtools", "stable-baselines3"
MODES = {"arrays": "vector_entry_point", "Gymnasium": "sync"}
BACKENDS = {
    "torch auto": ("torch", "auto"),
    "torch complete_update": ("torch", "complete_update"),
    "tf2": ("tf2", "auto"),
    "jax": ("jax", "auto"),
}
RUNS = {
    f"plugrad {name}, {num_envs} {pendulums}": (PLUGRAD, *backend, mode, num_envs)
    for name, backend in BACKENDS.items()
    for pendulums, mode, num_envs in (("arrays", MODES["arrays"], "4"), ("arrays", MODES["arrays"], "64"))
} | {"plugrad torch auto, 4 Gymnasium": (PLUGRAD, "torch", "auto", MODES["Gymnasium"], "4")}
OPENBLAS_CHOICES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Taken from the environment of all runs, so that OpenBLAS chooses by the processor."""


def commands(rltools: str | None, peers: str | None) -> dict[str, list[str]]:
    """What is run, without the seed."""
    found = {name: [sys.executable, str(HERE / each[0]), *each[1:]] for name, each in RUNS.items()}
    if peers:
        found[SB3] = [peers, str(HERE / "pendulum_sb3.py")]
    if rltools:
        found[RLTOOLS] = [rltools]
    return found


def run(command: list[str], seed: int, core: int) -> dict[str, Any]:
    """Run a command to its end on one core.

    Returns:
        What its last line says, and `process`: processor time of the process without the evaluation at its end.
    """
    variables = {name: each for name, each in environment().items() if name not in OPENBLAS_CHOICES}
    before = os.times()
    output = subprocess.run(
        [*command, str(seed)],
        env=variables,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    ).stdout
    after = os.times()
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return {**found, "process": spent - found["evaluation"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rltools", metavar="BINARY")
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with requirements-peers.txt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="runs whose name contains one of these")
    options = parser.parse_args()
    chosen = {
        name: command
        for name, command in commands(options.rltools, options.peers).items()
        if not options.only or any(each in name for each in options.only)
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for n in range(options.rounds + 1):
        for name in list(chosen)[:: 1 if n % 2 else -1]:
            result = run(chosen[name], n, options.core)
            print(f"round {n}, {name}: {result}", file=sys.stderr, flush=True)
            if n:
                found[name].append(result)
    print(machine(), "\n")
    keys = ("processor", "process", "wall", "sample", "learn", "return")
    header = [
        "medians of rounds",
        "processor s",
        "whole process",
        "wall s",
        "sampling (wall)",
        "learning (wall)",
    ]
    rows = [
        [name, *(_median(each, key) for key in keys), *_ratios(found, name)] for name, each in found.items()
    ]
    print(table([*header, "return", f"to {RLTOOLS}", f"to {SB3}"], rows))


def _median(results: list[dict[str, Any]], key: str) -> str:
    return f"{median(each[key] for each in results):.2f}" if key in results[0] else ""


def _ratios(found: dict[str, list[dict[str, Any]]], name: str) -> list[str]:
    """Medians of the paired ratios of processor time to RLtools' and to stable-baselines3's."""
    return [
        f"{median(a['processor'] / b['processor'] for a, b in zip(found[name], found[other], strict=True)):.2f}"
        if other in found
        else ""
        for other in (RLTOOLS, SB3)
    ]


if __name__ == "__main__":
    main()
