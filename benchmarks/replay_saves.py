"""Seconds of a save with a full replay buffer: a run with 1M rows of HalfCheetah's size that saves every 30 s.

`python benchmarks/replay_saves.py [--rows 1000000] [--saves 10] [--every 30] [--speed 300]`

Learning itself is left out. Between two saves, as many rows are added as a run of `--speed` environment steps per
second would add. A twin writes the same state with every row in it anew, as plugrad did before it had blocks.
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from report import machine, table

from plugrad.algorithm import Algorithm
from plugrad.checkpoint import save_checkpoint
from plugrad_sac import SACConfig

KINDS = ("uniform", "prioritized")


class SizeOfHalfCheetah(gym.Env[Any, Any]):
    """Observations and actions of HalfCheetah's sizes; nothing happens."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (17,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin at 0."""
        return np.zeros(17, np.float32), {}

    def step(self, action: Any) -> Any:
        """Stay at 0."""
        return np.zeros(17, np.float32), 0.0, False, False, {}


def make_rows(number: int, rng: np.random.Generator) -> dict[str, Any]:
    """Transitions as the replay buffer has them."""
    return {
        "obs": rng.normal(size=(number, 17)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (number, 6)).astype(np.float32),
        "rewards": rng.normal(size=number).astype(np.float32),
        "new_obs": rng.normal(size=(number, 17)).astype(np.float32),
        "terminateds": np.zeros(number, bool),
        "n_step": np.ones(number, np.float32),
    }


def make_algorithm(kind: str, rows: int) -> Algorithm:
    """SAC with 2x256, one step of it taken."""
    config = SACConfig().environment(SizeOfHalfCheetah).framework("torch", compile="none").debugging(seed=0)
    config = config.training(
        replay_buffer_config={"type": kind, "capacity": rows}, num_steps_sampled_before_learning_starts=0
    )
    algorithm = config.build_algo()
    algorithm.train()
    return algorithm


def timed_save(algorithm: Algorithm, path: Path) -> float:
    start = perf_counter()
    algorithm.save_to_path(path)
    return perf_counter() - start


def timed_twin(algorithm: Algorithm, path: Path) -> float:
    """All of it written anew."""
    start = perf_counter()
    save_checkpoint(path, _without_blocks(algorithm._training.get_state()), metadata={})
    return perf_counter() - start


def _without_blocks(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_blocks(value) if isinstance(value, Mapping) else value for name, value in state.items()
    }


def new_bytes(path: Path) -> int:
    """Of the newest save: the files that no other save has."""
    newest = max(path.iterdir(), key=lambda each: int(each.name.split("-")[1]))
    return sum(file.stat().st_size for file in newest.iterdir() if file.stat().st_nlink == 1)


def measure(kind: str, options: argparse.Namespace, folder: Path) -> list[str]:
    algorithm, rng = make_algorithm(kind, options.rows), np.random.default_rng(0)
    (buffer,) = algorithm._training._buffers.values()
    buffer.add(make_rows(options.rows, rng))
    first = timed_save(algorithm, folder / kind)
    saves, twins, sizes = [], [], []
    for _ in range(options.saves):
        buffer.add(make_rows(round(options.every * options.speed), rng))
        saves.append(timed_save(algorithm, folder / kind))
        sizes.append(new_bytes(folder / kind))
        twins.append(timed_twin(algorithm, folder / f"{kind}-twin"))
    algorithm.stop()
    shares = [f"{100 * each / options.every:.2f} %" for each in (median(saves), max(saves))]
    seconds = [f"{each:.2f}" for each in (first, median(saves), max(saves))]
    return [kind, *seconds, *shares, f"{median(sizes) / 1e6:.0f}", f"{median(twins):.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--saves", type=int, default=10)
    parser.add_argument("--every", type=float, default=30.0, help="seconds from one save to the next")
    parser.add_argument("--speed", type=float, default=300.0, help="environment steps per second")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; default: the temporary one")
    options = parser.parse_args()
    print(
        machine(),
        f"\n{options.rows} rows, {options.speed:g} steps per second, a save every {options.every:g} s\n",
    )
    header = [
        "replay",
        "first s",
        "median s",
        "largest s",
        "median share",
        "largest share",
        "new MB",
        "twin, median s",
    ]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="plugrad-replay-") as folder:
        print(table(header, [measure(kind, options, Path(folder)) for kind in KINDS]))


if __name__ == "__main__":
    main()
