"""stable-baselines3 as a contestant: `PPO.train` on a filled rollout buffer. Runs in the peers' venv."""

# mypy: disable-error-code="import-not-found"
# ruff: noqa: D102  (what the methods are for is said in contestants.Contestant)

from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from contestants import Contestant
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from workload import CLIP_PARAM, GRAD_CLIP, LEARNING_RATE, VF_COEFF, Array, Batch, Cell


def make(cell: Cell, seed: int, option: str) -> "StableBaselines":
    torch.set_num_threads(1)
    return StableBaselines(cell, seed)


class Spaces(gym.Env[Array, Any]):
    """An environment with the spaces of a cell. It is never stepped."""

    def __init__(self, cell: Cell) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (cell.obs_size,))
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(cell.num_actions)
        if cell.continuous:
            self.action_space = gym.spaces.Box(-1.0, 1.0, (cell.num_actions,))


class StableBaselines(Contestant):
    """stable-baselines3's PPO with the cell's settings. Adam's epsilon is its default, 1e-5."""

    def __init__(self, cell: Cell, seed: int) -> None:
        hiddens = list(cell.hiddens)
        self._model = PPO(
            "MlpPolicy",
            Spaces(cell),
            learning_rate=LEARNING_RATE,
            n_steps=cell.rows,
            batch_size=cell.minibatch_size,
            n_epochs=cell.num_epochs,
            clip_range=CLIP_PARAM,
            normalize_advantage=False,
            ent_coef=0.0,
            vf_coef=VF_COEFF,
            max_grad_norm=GRAD_CLIP,
            policy_kwargs={"net_arch": {"pi": hiddens, "vf": hiddens}, "activation_fn": torch.nn.Tanh},
            seed=seed,
            device="cpu",
        )
        self._model.set_logger(Logger(None, []))

    def describe(self) -> str:
        return f"stable-baselines3 {stable_baselines3.__version__}, torch {torch.__version__}"

    def prepare(self, batch: Batch) -> None:
        buffer = self._model.rollout_buffer
        buffer.reset()
        size, envs = buffer.buffer_size, buffer.n_envs
        buffer.observations = batch["obs"].reshape(size, envs, -1).copy()
        buffer.actions = batch["actions"].reshape(size, envs, -1).astype(np.float32)
        buffer.log_probs = batch["action_logp"].reshape(size, envs).copy()
        buffer.values = batch["vf_preds"].reshape(size, envs).copy()
        buffer.advantages = batch["advantages"].reshape(size, envs).copy()
        buffer.returns = batch["value_targets"].reshape(size, envs).copy()
        buffer.full = True

    def update(self, shuffle: bool) -> None:
        self._model.train()  # shuffles always
