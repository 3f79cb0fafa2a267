"""Environments of tensors beside the same ones as numpy arrays: environment steps a second of PPO's whole loop.

`python benchmarks/tensor_envs.py [--copies 64 1024 4096] [--rounds 5]`: the environments of examples/tensor_envs.py,
with `vectorization_mode="tensors"` and `"vector_entry_point"`, on one thread. Each cell is a process of its own that
runs one iteration a round; modes take turns. Printed are medians of processor seconds.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from alone import run_alone
from report import machine, table

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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", nargs="+", type=int, default=[64, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        backend, name, copies, rounds = options.cell
        print(json.dumps(seconds_of(backend, name, int(copies), int(rounds))))
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


if __name__ == "__main__":
    main()
