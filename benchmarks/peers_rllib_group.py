"""RLlib's LearnerGroup with zero, one and two remote learners, on the work of `learner_group`. For the peers' venv.

peers/bin/python benchmarks/peers_rllib_group.py small 9
"""

# mypy: disable-error-code="import-not-found"

import sys
from statistics import median
from time import perf_counter
from typing import Any

import peers_rllib
import ray
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from workload import CELLS, Cell, make_batch


def main() -> None:
    cell, rounds = CELLS[sys.argv[1]], int(sys.argv[2])
    start = perf_counter()
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    started = perf_counter() - start
    found = {number: milliseconds(cell, number, rounds) for number in (0, 1, 2)}
    words = [f"{n} remote: {ms:.0f} ms (built in {built:.1f} s)" for n, (ms, built) in found.items()]
    print(f"ray {ray.__version__}, started in {started:.1f} s; {'; '.join(words)}")


def milliseconds(cell: Cell, num_learners: int, rounds: int) -> tuple[float, float]:
    """Return the median milliseconds of an update, and the seconds of building."""
    observations, actions = peers_rllib.spaces(cell)
    config = peers_rllib.make_config(cell, 0, observations, actions).learners(
        num_learners=num_learners, num_cpus_per_learner=1
    )
    start = perf_counter()
    group = config.build_learner_group(spaces={"default_policy": (observations, actions)})
    built = perf_counter() - start
    seconds = [one_update(group, cell, seed, max(1, num_learners)) for seed in range(rounds + 2)]
    group.shutdown()
    return 1e3 * median(seconds[2:]), built


def one_update(group: Any, cell: Cell, seed: int, learners: int) -> float:
    batch = MultiAgentBatch({"default_policy": SampleBatch(make_batch(cell, seed))}, env_steps=cell.rows)
    start = perf_counter()
    group.update(
        batch=batch,
        timesteps={"num_env_steps_sampled_lifetime": cell.rows * (seed + 1)},
        minibatch_size=cell.minibatch_size // learners,
        num_epochs=cell.num_epochs,
        shuffle_batch_per_epoch=True,
    )
    return perf_counter() - start


if __name__ == "__main__":
    main()
