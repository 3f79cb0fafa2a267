"""One run of stable-baselines3 in the zoo, in the peers' venv: `python zoo_sb3.py CELL SEED [seconds]`.

The last line printed is JSON. Seconds are without imports and evaluations, from before the model is built; with the
word `seconds` they are those of some thousand steps after a warm-up, and nothing is evaluated.
"""

# mypy: disable-error-code="import-not-found, misc"

import json
import sys
from time import perf_counter
from typing import Any

import numpy as np
import torch
from record import installed
from stable_baselines3.common.callbacks import BaseCallback
from zoo_cell import Cell
from zoo_cells import CELLS
from zoo_evaluation import PACKAGES, evaluate
from zoo_sb3_models import make_model


class Curve(BaseCallback):
    """Evaluates now and then, and counts the seconds of that."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.points: list[tuple[int, float]] = []
        self.seconds = 0.0
        self._cell = cell

    def _on_step(self) -> bool:
        if self.num_timesteps % self._cell.evaluate_every == 0:
            before = perf_counter()
            mean = float(np.mean(play(self.model, self._cell, self._cell.curve_episodes)))
            self.points.append((self.num_timesteps, mean))
            self.seconds += perf_counter() - before
        return True


class Clock(BaseCallback):
    """Starts after the warm-up, with the first step of an update's rows."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self._cell = cell

    def _on_rollout_start(self) -> None:
        if self.num_timesteps == self._cell.warm_up:
            self.start = perf_counter()

    def _on_step(self) -> bool:
        return True


def play(model: Any, cell: Cell, episodes: int) -> list[float]:
    """Returns of the zoo's evaluation."""
    normalizer = model.get_vec_normalize_env()
    scaled = normalizer.normalize_obs if normalizer else lambda observations: observations
    return evaluate(
        lambda observations, memory: model.predict(scaled(observations), memory, deterministic=True),
        cell,
        episodes,
    )


def train(cell: Cell, seed: int) -> dict[str, Any]:
    """One run of the cell, with its curve and the returns at the end."""
    start = perf_counter()
    curve, model = Curve(cell), make_model(cell, seed, only_seconds=False)
    model.learn(cell.steps, callback=curve, log_interval=None)
    seconds = perf_counter() - start - curve.seconds
    returns = play(model, cell, cell.final_episodes)
    return {"seconds": seconds, "curve": curve.points, "returns": returns}


def time(cell: Cell, seed: int) -> dict[str, Any]:
    """Seconds of the steps after a warm-up."""
    clock, model = Clock(cell), make_model(cell, seed, only_seconds=True)
    model.learn(cell.warm_up + cell.timed_steps, callback=clock, log_interval=None)
    return {"seconds": perf_counter() - clock.start}


def main(name: str, seed: str, what: str = "") -> None:
    torch.set_num_threads(1)
    run = time if what == "seconds" else train
    print(json.dumps({**run(CELLS[name], int(seed)), "versions": installed(PACKAGES)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
