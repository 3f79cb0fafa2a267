"""Environments with gymnax's interface, for `vectorization_mode="tensors"`: a step of all copies is one program."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from plugrad.errors import ConfigError


class GymnaxVectorEnv(VectorEnv[Any, Any, Any]):
    """Copies of an environment of gymnax, or of one that has its interface.

    gymnax ends an episode also at `max_steps_in_episode`, and does not say why it ended. Here an episode that ends at
    that step is truncated, any other one is terminated.

    Args:
        num_envs: copies.
        env: gymnax's name, such as "CartPole-v1", or an object with `reset_env`, `step_env`, `default_params`,
            `action_space` and `observation_space`.
        env_params: fields of `default_params` that differ, such as `{"max_steps_in_episode": 200}`.
        **env_kwargs: further arguments of `gymnax.make`.

    Raises:
        ConfigError: gymnax is not installed, has no such environment, or a space is no Box or Discrete.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 (Gymnasium's declaration)

    def __init__(
        self, num_envs: int, env: Any, env_params: Mapping[str, Any] | None = None, **env_kwargs: Any
    ) -> None:
        made = _made(env, env_kwargs) if isinstance(env, str) else env
        params = made.default_params
        if env_params:
            params = params.replace(**env_params)
        self.env, self.params, self.num_envs = made, params, num_envs
        self.single_observation_space = _space(made.observation_space(params), "observations")
        self.single_action_space = _space(made.action_space(params), "actions")
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._begin: Any = jax.jit(self._begin_all)
        self._step: Any = jax.jit(self._step_all)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin everywhere; the key is made of the seed."""
        super().reset(seed=seed)
        self._state, observations = self._begin(jax.random.key(int(self.np_random.integers(2**31))))
        return observations, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all; where an episode ends the next one begins, and `final_obs` has its last observation."""
        self._state, (observations, rewards, terminated, truncated, final) = self._step(self._state, actions)
        return observations, rewards, terminated, truncated, {"final_obs": final}

    def _begin_all(self, key: Any) -> Any:
        key, own = jax.random.split(key)
        observations, states = self._reset_each(own)
        return (key, states, jnp.zeros(self.num_envs, jnp.int32)), self._rows(observations)

    def _step_all(self, state: Any, actions: Any) -> Any:
        key, states, ages = state
        key, own, fresh = jax.random.split(key, 3)
        keys = jax.random.split(own, self.num_envs)
        step: Any = jax.vmap(lambda key, state, action: self.env.step_env(key, state, action, self.params))
        after, states, rewards, ended, _ = step(keys, states, actions)
        ended, ages = ended.reshape(self.num_envs), ages + 1
        most = getattr(self.params, "max_steps_in_episode", None)
        truncated = jnp.zeros_like(ended) if most is None else ended & (ages >= most)
        begun, new_states = self._reset_each(fresh)

        def chosen(new: Any, old: Any) -> Any:
            return jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        goes_on = jax.tree.map(chosen, new_states, states), jnp.where(ended, 0, ages)
        answers = (
            self._rows(chosen(begun, after)),
            rewards.reshape(self.num_envs).astype(jnp.float32),
            ended & ~truncated,
            truncated,
            self._rows(after),
        )
        return (key, *goes_on), answers

    def _reset_each(self, key: Any) -> Any:
        keys = jax.random.split(key, self.num_envs)
        return jax.vmap(lambda own: self.env.reset_env(own, self.params))(keys)

    def _rows(self, observations: Any) -> Any:
        return observations.astype(self.single_observation_space.dtype)


def _made(name: str, settings: Mapping[str, Any]) -> Any:
    if find_spec("gymnax") is None:
        raise ConfigError(f"the environment {name!r} of gymnax: gymnax is not installed: pip install gymnax")
    gymnax = import_module("gymnax")
    if name not in gymnax.registered_envs:
        known = ", ".join(gymnax.registered_envs)
        raise ConfigError(f"gymnax has no environment {name!r}; it has {known}", env=name)
    return gymnax.make(name, **settings)[0]


def _space(space: Any, of: str) -> gym.Space[Any]:
    """Gymnasium's form of a space of gymnax."""
    if hasattr(space, "n") and not hasattr(space, "low"):
        return gym.spaces.Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise ConfigError(f"{of} of {type(space).__name__}: expected a Box or Discrete of gymnax")
    dtype: Any = np.uint8 if np.dtype(space.dtype) == np.uint8 else np.float32
    low, high = (
        np.broadcast_to(np.asarray(each), space.shape).astype(dtype) for each in (space.low, space.high)
    )
    return gym.spaces.Box(low, high, dtype=dtype)
