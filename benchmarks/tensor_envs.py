"""Environments of tensors beside the same ones as numpy arrays: environment steps a second of the whole loop.

`python benchmarks/tensor_envs.py [--copies 64 1024 4096] [--rounds 5] [--replay]`: the environments of
examples/tensor_envs.py, with `vectorization_mode="tensors"` and `"vector_entry_point"`, on one thread: of PPO, with
`--replay` of DQN (cart-pole) and SAC (pendulum), whose buffers have 100,000 rows: four steps of each copy, then four
gradient steps of 256 rows. Each cell is a process of its own that runs one iteration a round; modes take turns. Printed
are medians of processor seconds.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from alone import run_alone
from report import machine, table

from plugrad import AlgorithmConfig
from plugrad_dqn import DQNConfig
from plugrad_sac import SACConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

BACKENDS = ("torch", "jax")
ENVIRONMENTS = ("cart-pole", "pendulum")


def seconds_of(backend: str, name: str, copies: int, rounds: int) -> dict[str, Any]:
    """Median processor seconds of sampling and of the rest of one iteration, by mode."""
    from contestant_plugrad import use_one_thread
    from tensor_envs import config

    use_one_thread(backend)
    tensors = config(backend, name, copies)
    arrays = tensors.environment(env_config={**tensors.env_config, "backend": "numpy"})
    arrays = arrays.env_runners(vectorization_mode="vector_entry_point")
    algorithms = {"tensors": tensors.build_algo(), "arrays": arrays.build_algo()}
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in algorithms}
    for number in range(rounds + 1):
        for mode, algorithm in algorithms.items():
            start = process_time()
            episodes = algorithm.sample()
            sampled = process_time()
            if mode == "tensors":
                algorithm.update(algorithm.env_runner.take_batch())
            else:
                algorithm.update(episodes=episodes)
            if number:  # the first one compiles
                found[mode].append((sampled - start, process_time() - sampled))
    return {mode: [median(part) for part in zip(*each, strict=True)] for mode, each in found.items()}


def replay_config(backend: str, name: str, copies: int) -> AlgorithmConfig:
    """DQN or SAC on copies of an environment of tensors."""
    from tensor_envs import config

    ppo = config(backend, name, copies)
    made = {"cart-pole": DQNConfig, "pendulum": SACConfig}[name]()
    made = made.framework(backend, device="cpu").debugging(seed=0)
    made = made.environment(ppo.env, env_config=ppo.env_config).rl_module(
        model_config={"fcnet_hiddens": [32, 32]}
    )
    made = made.env_runners(
        vectorization_mode="tensors", num_envs_per_env_runner=copies, rollout_fragment_length=4
    )
    return made.training(
        train_batch_size=1024,
        minibatch_size=256,
        training_intensity=None,
        num_steps_sampled_before_learning_starts=1,
        replay_buffer_config={"capacity": 100_000},
    )


def seconds_of_replay(backend: str, name: str, copies: int, rounds: int) -> dict[str, float]:
    """Median processor seconds of an environment step, by mode."""
    from contestant_plugrad import use_one_thread

    use_one_thread(backend)
    tensors = replay_config(backend, name, copies)
    arrays = tensors.environment(env_config={**tensors.env_config, "backend": "numpy"})
    arrays = arrays.env_runners(vectorization_mode="vector_entry_point")
    algorithms = {"tensors": tensors.build_algo(), "arrays": arrays.build_algo()}
    found: dict[str, list[float]] = {mode: [] for mode in algorithms}
    before = dict.fromkeys(algorithms, 0)
    for number in range(rounds + 2):
        for mode, algorithm in algorithms.items():
            start = process_time()
            steps = int(algorithm.train()["num_env_steps_sampled_lifetime"])
            if number > 1:  # the first ones compile
                found[mode].append((process_time() - start) / (steps - before[mode]))
            before[mode] = steps
    return {mode: median(each) for mode, each in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", nargs="+", type=int, default=[64, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replay", action="store_true", help="DQN and SAC in place of PPO")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        backend, name, copies, rounds = options.cell
        measure: Any = seconds_of_replay if options.replay else seconds_of
        print(json.dumps(measure(backend, name, int(copies), int(rounds))))
        return
    if options.replay:
        print_replay(options.copies, options.rounds)
        return
    rows = []
    for name in ENVIRONMENTS:
        for backend in BACKENDS:
            for copies in options.copies:
                found = run_alone(
                    "tensor_envs.py", "--cell", backend, name, copies, options.rounds, core=None
                )
                both = {mode: sum(each) for mode, each in found.items()}
                rows.append(
                    [
                        name,
                        backend,
                        copies,
                        *(f"{32 * copies / both[mode]:,.0f}" for mode in ("tensors", "arrays")),
                        f"{both['arrays'] / both['tensors']:.2f}",
                        f"{found['arrays'][0] / found['tensors'][0]:.2f}",
                    ]
                )
    print(machine())
    heads = (
        "environment",
        "backend",
        "copies",
        "tensors, steps/s",
        "arrays, steps/s",
        "ratio",
        "of sampling",
    )
    print(table(heads, rows))


def print_replay(numbers: Sequence[int], rounds: int) -> None:
    """Measure and print DQN and SAC."""
    rows = []
    for name in ENVIRONMENTS:
        for backend in BACKENDS:
            for copies in numbers:
                cell = ("--replay", "--cell", backend, name, copies, rounds)
                found = run_alone("tensor_envs.py", *cell, core=None)
                speeds = (f"{1 / found[mode]:,.0f}" for mode in ("tensors", "arrays"))
                rows.append([name, backend, copies, *speeds, f"{found['arrays'] / found['tensors']:.2f}"])
    print(machine())
    print(table(("environment", "backend", "copies", "tensors, steps/s", "arrays, steps/s", "ratio"), rows))


if __name__ == "__main__":
    main()
