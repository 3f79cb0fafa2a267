"""Many seeds as one program beside one seed: `python seeds.py BACKEND [--seeds 16] [--rounds 7] [--only update]`.

Two ratios, each the median of pairs in one run: the update of all seeds to the update of one, and a whole iteration of
PPO on CartPole-v1 (sampling included) to that of one. One thread; the first rounds compile and do not count. The last
line printed is JSON.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Any

from contestant_plugrad import make_config, use_one_thread
from workload import SMALL, make_batch

from plugrad.learner.update.batched_programs import ProgramBatch
from plugrad_ppo import PPOConfig

Times = tuple[float, float]
"""Wall and CPU seconds."""


def main(backend: str, seeds: int, rounds: int, only: str | None) -> None:
    use_one_thread(backend)
    found: dict[str, Any] = {"backend": backend, "seeds": seeds, "rounds": rounds}
    for name, make in (("update", updates), ("iteration", iterations)):
        if only not in (None, name):
            continue
        one, many = make(backend, seeds)
        for _ in range(2):
            one(), many()
        pairs = [(timed(one), timed(many)) for _ in range(rounds)]
        found[name] = {
            "wall_ratio": round(median(all_[0] / single[0] for single, all_ in pairs), 2),
            "cpu_ratio": round(median(all_[1] / single[1] for single, all_ in pairs), 2),
            "one_ms": round(1e3 * median(single[0] for single, _ in pairs), 1),
            "many_ms": round(1e3 * median(all_[0] for _, all_ in pairs), 1),
        }
    print(json.dumps(found))


def timed(function: Callable[[], Any]) -> Times:
    wall, cpu = perf_counter(), process_time()
    function()
    return perf_counter() - wall, process_time() - cpu


def updates(backend: str, seeds: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The update of the small cell: one learner alone, and many with batches of their own."""
    alone, *learners = (
        make_config(SMALL, seed, backend, "auto").build_learner() for seed in range(seeds + 1)
    )
    batch = ProgramBatch(seeds)
    for each in learners:
        batch.join(each)
    rows = [make_batch(SMALL, seed) for seed in range(seeds)]
    functions = [partial(learner.update, each) for learner, each in zip(learners, rows, strict=True)]
    return partial(alone.update, rows[0]), partial(batch.train, functions)


def iterations(backend: str, seeds: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An iteration of PPO on CartPole-v1: one algorithm, and many."""
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .rl_module(model_config={"fcnet_hiddens": SMALL.hiddens})
        .env_runners(num_envs_per_env_runner=8)
        .training(train_batch_size=2048, minibatch_size=64, num_epochs=10)
        .debugging(seed=0)
    )
    alone, batch = config.build_algo(), config.build_seeds(seeds)
    return alone.train, batch.train


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["update", "iteration"])
    main(**vars(parser.parse_args()))
