"""One run of stable-baselines3 in the zoo, in the peers' venv: `python zoo_sb3.py CELL SEED [seconds]`.

The last line printed is JSON. Seconds are without imports and evaluations, from before the model is built; with the
word `seconds` they are those of some thousand steps after a warm-up, and nothing is evaluated.
"""

# mypy: disable-error-code="import-not-found, misc"

import json
import sys
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from record import installed
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise
from zoo_cells import CELLS, EVERYWHERE, SECONDS_RANDOM_STEPS, SECONDS_STEPS, SECONDS_WARM_UP, Cell
from zoo_evaluation import PACKAGES, evaluate

ALGORITHMS = {"sac": SAC, "td3": TD3}


def make_model(cell: Cell, seed: int, random_steps: int) -> Any:
    """Make a model with the settings of a cell; what it does not name is stable-baselines3's default."""
    env = gym.make(cell.env)
    more: dict[str, Any] = {} if cell.lr is None else {"learning_rate": schedule(cell.lr, cell.steps)}
    if cell.algorithm == "td3":
        shape = env.action_space.shape or ()
        more["action_noise"] = NormalActionNoise(
            np.zeros(shape), np.full(shape, EVERYWHERE["td3_action_noise"])
        )
    return ALGORITHMS[cell.algorithm](
        "MlpPolicy",
        env,
        batch_size=EVERYWHERE["batch_size"],
        buffer_size=EVERYWHERE["capacity"],
        gamma=EVERYWHERE["gamma"],
        tau=cell.tau,
        learning_starts=random_steps,
        train_freq=cell.steps_per_update,
        gradient_steps=cell.steps_per_update,
        policy_kwargs={"net_arch": cell.hiddens},
        seed=seed,
        device="cpu",
        **more,
    )


def schedule(lr: Any, steps: int) -> Any:
    """A learning rate as stable-baselines3 takes it: a float, or a function of the share of steps that remain."""
    if isinstance(lr, float):
        return lr
    at, values = np.asarray(lr, dtype=float).T
    return lambda remaining: float(np.interp((1.0 - remaining) * steps, at, values))


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
            mean = float(np.mean(play(self.model, self._cell.env, self._cell.curve_episodes)))
            self.points.append((self.num_timesteps, mean))
            self.seconds += perf_counter() - before
        return True


class Clock(BaseCallback):
    """Starts after the warm-up."""

    def _on_step(self) -> bool:
        if self.num_timesteps == SECONDS_WARM_UP:
            self.start = perf_counter()
        return True


def play(model: Any, env: str, episodes: int) -> list[float]:
    """Returns of the zoo's evaluation."""
    return evaluate(lambda observations: model.predict(observations, deterministic=True)[0], env, episodes)


def train(cell: Cell, seed: int) -> dict[str, Any]:
    """One run of the cell, with its curve and the returns at the end."""
    start = perf_counter()
    curve, model = Curve(cell), make_model(cell, seed, cell.random_steps)
    model.learn(cell.steps, callback=curve, log_interval=None)
    seconds = perf_counter() - start - curve.seconds
    returns = play(model, cell.env, cell.final_episodes)
    return {"seconds": seconds, "curve": curve.points, "returns": returns}


def time(cell: Cell, seed: int) -> dict[str, Any]:
    """Seconds of the steps after a warm-up."""
    clock, model = Clock(), make_model(cell, seed, SECONDS_RANDOM_STEPS)
    model.learn(SECONDS_WARM_UP + SECONDS_STEPS, callback=clock, log_interval=None)
    return {"seconds": perf_counter() - clock.start}


def main(name: str, seed: str, what: str = "") -> None:
    torch.set_num_threads(1)
    run = time if what == "seconds" else train
    print(json.dumps({**run(CELLS[name], int(seed)), "versions": installed(PACKAGES)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
