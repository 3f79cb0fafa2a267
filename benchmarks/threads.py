"""Time of one gradient step of PPO on torch by the number of threads and the size of the work.

`python benchmarks/threads.py [--modes none recorded]`. It runs on all cores of the machine.
"""

import argparse
import os
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from contestant_plugrad import compile_mode
from report import machine, table

from plugrad_ppo import PPOConfig
from plugrad_torch import threads as choice

SIZES = [
    (64, 4, 64),
    (256, 4, 64),
    (64, 376, 256),
    (256, 17, 256),
    (512, 64, 256),
    (512, 376, 256),
    (4096, 64, 64),
]
"""Rows of a minibatch, inputs, width of two layers in each of two networks."""
STEPS = 32


def flops(rows: int, inputs: int, width: int) -> float:
    """Of the matrix products of a step: forward, and twice as many backward."""
    return 6.0 * rows * 2 * (inputs * width + width * width)


def update(rows: int, inputs: int, width: int, mode: str) -> Callable[[], Any]:
    """Make a function that calls `Learner.update` for `STEPS` steps."""
    spaces = {"observation_space": gym.spaces.Box(-1, 1, (inputs,)), "action_space": gym.spaces.Discrete(2)}
    config = PPOConfig(backend="torch", compile=compile_mode(mode)).environment(**spaces).debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": [width, width]})
    learner = config.training(minibatch_size=rows, num_epochs=STEPS // 4).build_learner()
    rng, count = np.random.default_rng(0), rows * 4
    batch = {
        "obs": rng.uniform(-1, 1, (count, inputs)).astype(np.float32),
        "actions": rng.integers(0, 2, count),
        "action_logp": np.full(count, -0.7, np.float32),
        "action_dist_inputs": np.zeros((count, 2), np.float32),
        "advantages": rng.standard_normal(count).astype(np.float32),
        "value_targets": rng.standard_normal(count).astype(np.float32),
    }
    return lambda: learner.update(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="+", default=["none", "recorded"])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    choice.MOST_FLOPS = 0.0  # otherwise plugrad takes one thread for small steps
    threads = sorted({1, *(2**n for n in range(1, 5) if 2**n <= (os.cpu_count() or 1))})
    rows = []
    for mode in options.modes:
        for size in SIZES:
            call = update(*size, mode)
            times: dict[int, list[float]] = {each: [] for each in threads}
            for round_number in range(options.rounds + 2):
                for each in threads:
                    torch.set_num_threads(each)
                    start = perf_counter()
                    call()
                    if round_number > 1:
                        times[each].append(1e3 * (perf_counter() - start) / STEPS)
            medians = [f"{median(times[each]):.2f}" for each in threads]
            rows.append([mode, *size, f"{flops(*size) / 1e6:.1f}", *medians])
    waiting = {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    print(machine(), "\n", f"\n{waiting}; ms per step\n")
    print(table(["mode", "rows", "inputs", "width", "MFLOP", *(f"{each} threads" for each in threads)], rows))


if __name__ == "__main__":
    main()
