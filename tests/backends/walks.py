"""Vector environments that can be foretold, as arrays and as tensors of each framework."""

from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

ACTIONS = {
    "discrete": gym.spaces.Discrete(3),
    "start": gym.spaces.Discrete(3, start=5),
    "parts": gym.spaces.Dict(one=gym.spaces.Discrete(2), two=gym.spaces.Discrete(3)),
    "box": gym.spaces.Box(np.array([-0.1, -0.2], np.float32), 0.1, (2,)),
}


class Walks(VectorEnv[Any, Any, Any]):
    """Walk `n` has episodes of 2 to 5 steps, of which every second is truncated; an observation is [n, episode, step].

    Args:
        num_envs: how many walks.
        actions: of `ACTIONS`; a reward has their sum.
        mode: of resetting.
        far: is added to the last two numbers of observations.
    """

    def __init__(
        self, num_envs: int, actions: str = "discrete", mode: str = "SAME_STEP", far: float = 0.0
    ) -> None:
        self.num_envs, self.far = num_envs, np.array([0.0, far, far], np.float32)
        self.metadata = {"autoreset_mode": AutoresetMode[mode]}
        self.same_step = mode == "SAME_STEP"
        self.single_observation_space = gym.spaces.Box(0, np.inf, (3,), np.float32)
        self.single_action_space = ACTIONS[actions]
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        first = self.np_random.integers(100)
        self.at = np.array([[n, first, 0] for n in range(self.num_envs)], np.float32)
        self.ended = np.zeros(self.num_envs, bool)
        return self.at + self.far, {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        sums = np.asarray(actions, np.float64).reshape(self.num_envs, -1).sum(-1)
        if not self.same_step:
            self._begin(self.ended)
        moves = np.ones(self.num_envs, bool) if self.same_step else ~self.ended
        self.at[moves, 2] += 1
        walk, episode, step = self.at.T
        self.ended = moves & (step == 2 + (3 * walk + episode) % 4)
        truncated = self.ended & ((walk + episode) % 2 == 1)
        rewards = np.where(moves, sums + step, 0.0)
        final = np.where(
            self.ended[:, None], self.at + self.far, np.float32(-9.0)
        )  # rows of others are not read
        if self.same_step:
            self._begin(self.ended)
        infos = {"final_obs": final, "_final_obs": self.ended.copy()} if self.same_step else {}
        return self.at + self.far, rewards, self.ended & ~truncated, truncated, infos

    def _begin(self, where: Any) -> None:
        self.at[where, 1] += 1
        self.at[where, 2] = 0


MAKE = {
    "torch": lambda values: import_module("torch").from_numpy(np.array(values)),
    "tf2": lambda values: import_module("tensorflow").constant(values),
    "jax": lambda values: import_module("jax.numpy").asarray(values),
}


class WalksOfTensors(VectorWrapper):
    """`Walks` of a framework's tensors. Where these can be written, every step writes the same ones,
    and writes into its actions.

    Args:
        num_envs: how many walks.
        backend: of the tensors.
        learner: has the device of the tensors; None: that of the framework.
        **settings: of `Walks`.
    """

    def __init__(self, num_envs: int, backend: str, learner: Any = None, **settings: Any) -> None:
        super().__init__(Walks(num_envs, **settings))
        self.backend, self.learner, self.written = backend, learner, dict[str, Any]()

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        obs, infos = self.env.reset(**settings)
        return self.tensor("obs", obs), infos

    def step(self, actions: Any) -> tuple[Any, ...]:
        assert not isinstance(actions, np.ndarray)
        given = np.asarray(actions) if self.learner is None else self.learner._convert_to_numpy(actions)
        *answers, infos = self.env.step(given.copy())
        if self.backend == "torch":
            actions.zero_()  # as simulators do that clip or scale in place
        names = ("obs", "rewards", "terminated", "truncated")
        tensors = (self.tensor(name, each) for name, each in zip(names, answers, strict=True))
        final = {"final_obs": self.tensor("final", infos["final_obs"])} if infos else {}
        return (*tensors, final)

    def tensor(self, name: str, values: Any) -> Any:
        array = np.asarray(values, np.float32 if values.dtype == np.float64 else None)
        if self.learner is not None:
            return self.learner._convert_batch_type({name: array})[name]
        made = MAKE[self.backend](array)
        if self.backend == "torch":
            made = self.written.setdefault(name, made).copy_(made)
        return made
