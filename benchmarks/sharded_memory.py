"""Resident memory of each of two processes whose learner is whole, or divided by `learners(sharding="fsdp")`.

    torchrun --nproc-per-node 2 benchmarks/sharded_memory.py --algorithm sac --sharding fsdp

Two hidden layers of 2048 units, 256 rows, torch. It prints, above what the process had before its learner was built,
MB that are resident between updates and at most in an update, and the seconds of an update.
"""

import argparse
import ctypes
import gc
import os
from statistics import median
from time import perf_counter
from typing import Any

import gymnasium as gym
import memory
import numpy as np
import torch  # noqa: F401 - its memory is no learner's

import plugrad

OBSERVED, ROWS, UPDATES = 64, 256, 5


def rows_of(algorithm: str, rank: int) -> dict[str, Any]:
    """The rows of a process."""
    rng = np.random.default_rng(rank)
    obs, new_obs = rng.normal(size=(2, ROWS // 2, OBSERVED)).astype(np.float32)
    rows: dict[str, Any] = {"obs": obs, "actions": rng.uniform(-0.9, 0.9, (ROWS // 2, 4)).astype(np.float32)}
    numbers = {name: rng.normal(size=ROWS // 2).astype(np.float32) for name in ("rewards", "advantages")}
    if algorithm == "sac":
        return {
            **rows,
            "new_obs": new_obs,
            "rewards": numbers["rewards"],
            "terminateds": np.zeros(ROWS // 2, bool),
        }
    return {
        **rows,
        "advantages": numbers["advantages"],
        "value_targets": numbers["rewards"],
        "vf_preds": numbers["rewards"],
        "action_logp": np.full(ROWS // 2, -4.0, np.float32),
        "action_dist_inputs": np.zeros((ROWS // 2, 8), np.float32),
    }


def resident() -> int:
    """Bytes that are resident now; memory that was freed is given back first."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return memory.resident()


def main() -> None:
    """Build, update and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--algorithm", choices=("ppo", "sac"), default="ppo")
    parser.add_argument("--collective", default="gloo")
    parser.add_argument("--sharding", choices=("none", "fsdp"), required=True)
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    config = plugrad.get_algorithm(options.algorithm)().framework("torch", compile="none").debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": [2048, 2048]})
    config = config.training(minibatch_size=ROWS, grad_clip=0.5, grad_clip_by="global_norm")
    if options.algorithm == "ppo":
        config = config.training(num_epochs=1)
    config = config.environment(
        observation_space=gym.spaces.Box(-np.inf, np.inf, (OBSERVED,)),
        action_space=gym.spaces.Box(-1.0, 1.0, (4,)),
    )
    sharding = None if options.sharding == "none" else options.sharding
    config = config.learners(launcher="env", collective=options.collective, sharding=sharding)
    rows = rows_of(options.algorithm, rank)
    before = resident()
    learner = config.build_learner()
    learner.update(rows)
    between, seconds = resident(), []
    memory.reset_peak()
    for _ in range(UPDATES):
        begun = perf_counter()
        learner.update(rows)
        seconds.append(perf_counter() - begun)
    most = memory.peak()
    parameters = sum(each.layout.num_parameters for each in learner.registered_optimizers.values())
    print(
        f"{options.algorithm}, sharding={sharding}, process {rank} of {size}, {parameters / 1e6:.1f} M parameters: "
        f"between updates {(between - before) / 1e6:.0f} MB, in an update at most {(most - before) / 1e6:.0f} MB, "
        f"{median(seconds):.2f} s",
        flush=True,
    )
    learner.shutdown()


if __name__ == "__main__":
    main()
