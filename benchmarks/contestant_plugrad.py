"""plugrad as a contestant: `Learner.update` with all checks, on one backend in one mode. Counts calls of the loss."""

# ruff: noqa: D102  (what the methods are for is said in contestants.Contestant)

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from contestants import Contestant
from workload import (
    ADAM_EPS,
    CLIP_PARAM,
    GRAD_CLIP,
    LEARNING_RATE,
    VF_COEFF,
    Cell,
    Weights,
    initial_weights,
)

import plugrad
from plugrad_ppo import PPOConfig, PPOLearner


class CountingLearner(PPOLearner):
    """PPO's learner, counting calls of the loss. A compiled mode calls the loss only while it traces."""

    calls = 0

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        """PPO's loss."""
        self.calls += 1
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


def make(cell: Cell, seed: int, option: str) -> "Plugrad":
    backend, mode = option.split(":")
    use_one_thread(backend)
    return Plugrad(cell, seed, backend, compile_mode(mode))


def compile_mode(mode: str) -> str:
    """The setting of a mode; "recorded" is what torch's "auto" does between its first steps and its compiled ones."""
    if mode == "recorded":
        from plugrad_torch import auto_update

        auto_update.STEPS_BEFORE_RECORDING = 0
        auto_update.STEPS_BEFORE_COMPILING = auto_update.STEPS_BEFORE_CHANGING = 10**9
        return "auto"
    return mode


def use_one_thread(backend: str) -> None:
    """Limit the framework to one thread. Call it before the framework starts its thread pools.

    JAX has as many threads as the process has cores.
    """
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
    elif backend == "tf2":
        import plugrad_tf2  # noqa: F401  (first, as in a learner's process: TensorFlow reads what it sets)

        # isort: split
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def make_config(cell: Cell, seed: int, backend: str, mode: str) -> PPOConfig:
    """Make the config of a cell."""
    actions: gym.Space[Any] = gym.spaces.Discrete(cell.num_actions)
    if cell.continuous:
        actions = gym.spaces.Box(-1.0, 1.0, (cell.num_actions,))
    return (
        PPOConfig()
        .environment(
            observation_space=gym.spaces.Box(-np.inf, np.inf, (cell.obs_size,)), action_space=actions
        )
        .framework(backend, compile=mode)
        .rl_module(model_config={"fcnet_hiddens": cell.hiddens, "fcnet_activation": "tanh"})
        .training(
            lr=[[0, LEARNING_RATE], [10**9, LEARNING_RATE]],  # a schedule, so that schedules are on
            optimizer={"eps": ADAM_EPS},
            clip_param=CLIP_PARAM,
            vf_loss_coeff=VF_COEFF,
            entropy_coeff=0.0,
            grad_clip=GRAD_CLIP,
            grad_clip_by="global_norm",
            minibatch_size=cell.minibatch_size,
            num_epochs=cell.num_epochs,
        )
        .debugging(seed=seed)
    )


class Plugrad(Contestant):
    """A learner with the cell's weights."""

    def __init__(
        self, cell: Cell, seed: int, backend: str, mode: str, learner_class: Any = CountingLearner
    ) -> None:
        config = make_config(cell, seed, backend, mode).learners(learner_class=learner_class)
        self.learner: Any = config.build_learner()
        self.learner.set_weights({plugrad.DEFAULT_MODULE_ID: initial_weights(cell, seed)})
        self._steps = 0

    def describe(self) -> str:
        return str(self.learner.update_mode)

    def update(self, shuffle: bool) -> None:
        self._steps += len(self.batch["obs"])
        timesteps = {"num_env_steps_sampled_lifetime": self._steps}
        self.learner.update(
            self.batch, timesteps=timesteps, num_epochs=self.epochs, shuffle_batch_per_epoch=shuffle
        )

    def weights(self) -> Weights:
        return dict(self.learner.get_weights()[plugrad.DEFAULT_MODULE_ID])

    def count(self) -> int | None:
        return getattr(self.learner, "calls", None)

    def save(self, path: Path) -> None:
        self.learner.save_to_path(path)

    def restore(self, path: Path) -> None:
        self.learner.restore_from_path(path)
