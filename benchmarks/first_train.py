"""Time the README's first command: the whole process of `plugrad train` on CartPole-v1 until it is solved.

`python benchmarks/first_train.py [--seeds 5]`; It runs as for a user: with all cores and imports.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, run
from time import perf_counter

import gymnasium as gym
import record
from report import machine, table

BACKENDS = ("torch", "tf2", "jax")


def train(backend: str, seed: int, folder: Path) -> tuple[float, int]:
    """Run the command once. Returns seconds and environment steps.

    Raises:
        CalledProcessError: the command failed, or did not reach the goal.
    """
    place = folder / f"{backend}-{seed}"
    options = ["--quiet", "--backend", backend, "--seed", str(seed), "--out", str(place)]
    command = str(Path(sys.executable).with_name("plugrad"))
    start = perf_counter()
    run([command, "train", "ppo", "CartPole-v1", *options], stdout=DEVNULL, check=True)
    seconds = perf_counter() - start
    last = json.loads((place / "metrics.jsonl").read_text().splitlines()[-1])
    return seconds, int(last["num_env_steps_sampled_lifetime"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1")
    record.add_options(parser)
    options = parser.parse_args()
    goal = gym.spec("CartPole-v1").reward_threshold
    assert goal is not None
    figures: dict[str, float] = {"goal": goal, "seeds": options.seeds, "cores": os.cpu_count() or 0}
    rows = []
    with tempfile.TemporaryDirectory(prefix="plugrad-first-") as folder:
        for backend in BACKENDS:
            runs = [train(backend, seed, Path(folder)) for seed in range(options.seeds)]
            seconds = [each for each, _ in runs]
            figures |= {f"{backend} fastest s": min(seconds), f"{backend} slowest s": max(seconds)}
            figures[f"{backend} median s"] = median(seconds)
            rows.append([backend, *(f"{steps:,} steps, {took:.1f} s" for took, steps in runs)])
    print(machine(), "\n")
    print(table(["backend", *(f"seed {n}" for n in range(options.seeds))], rows))
    record.save(options.save, "first train", figures)


if __name__ == "__main__":
    main()
