"""RLlib as a contestant: `Learner.update` on a ready batch. Runs in the peers' venv, without a Ray cluster."""

# mypy: disable-error-code="import-not-found"
# ruff: noqa: D102  (what the methods are for is said in contestants.Contestant)

from pathlib import Path

import gymnasium as gym
import numpy as np
import ray
import torch
from contestants import Contestant
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from workload import CLIP_PARAM, GRAD_CLIP, LEARNING_RATE, VF_COEFF, Batch, Cell


def make(cell: Cell, seed: int, option: str) -> "RLlib":
    torch.set_num_threads(1)
    return RLlib(cell, seed)


def spaces(cell: Cell) -> tuple[gym.Space, gym.Space]:
    """Return the observation and action space of a cell."""
    observations = gym.spaces.Box(-np.inf, np.inf, (cell.obs_size,), np.float32)
    if cell.continuous:
        return observations, gym.spaces.Box(-1.0, 1.0, (cell.num_actions,), np.float32)
    return observations, gym.spaces.Discrete(cell.num_actions)


def make_config(cell: Cell, seed: int, observations: gym.Space, actions: gym.Space) -> PPOConfig:
    """Make RLlib's config of a cell."""
    return (
        PPOConfig()
        .environment(observation_space=observations, action_space=actions)
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(cell.hiddens),
                fcnet_activation="tanh",
                vf_share_layers=False,
                free_log_std=cell.continuous,
            )
        )
        .training(
            lr=LEARNING_RATE,
            clip_param=CLIP_PARAM,
            vf_clip_param=np.inf,
            vf_loss_coeff=VF_COEFF,
            entropy_coeff=0.0,
            use_kl_loss=False,
            grad_clip=GRAD_CLIP,
            grad_clip_by="global_norm",
        )
        .debugging(seed=seed)
    )


class RLlib(Contestant):
    """RLlib's PPO learner with the cell's settings. Adam's epsilon is RLlib's default."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self._cell = cell
        observations, actions = spaces(cell)
        config = make_config(cell, seed, observations, actions)
        self._learner = config.build_learner(spaces={"default_policy": (observations, actions)})
        self._batch: MultiAgentBatch | None = None
        self._steps = 0

    def describe(self) -> str:
        return f"ray {ray.__version__}, torch {torch.__version__}"

    def prepare(self, batch: Batch) -> None:
        rows = len(batch["obs"])
        self._batch = MultiAgentBatch({"default_policy": SampleBatch(batch)}, env_steps=rows)
        self._steps += rows

    def update(self, shuffle: bool) -> None:
        self._learner.update(
            batch=self._batch,
            timesteps={"num_env_steps_sampled_lifetime": self._steps},
            minibatch_size=self._cell.minibatch_size,
            num_epochs=self._cell.num_epochs,
            shuffle_batch_per_epoch=shuffle,
        )

    def save(self, path: Path) -> None:
        self._learner.save_to_path(path)

    def restore(self, path: Path) -> None:
        self._learner.restore_from_path(path)
