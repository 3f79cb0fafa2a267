"""`EnvPoolEnvs`: all environments in one native pool of the package envpool (Weng et al. 2022, arXiv:2206.10558)."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.spaces.utils import flatten_space

from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.on_use import require_extra
from plugrad.observations.rows import flat_rows
from plugrad.rng_streams import fresh_seed
from plugrad.sampling.info_metrics import INFO_METRICS, numbers_of_infos
from plugrad.sampling.vector_envs import EnvSpaces, VectorEnvs, reset_seeds
from plugrad.spaces.kinds import is_box
from plugrad.spaces.layout import leaves, with_leaves
from plugrad.types import Array

OWN = ("num_envs", "batch_size", "seed", "env_seed", "max_num_players", "gym_reset_return_info")
"""Arguments of envpool that follow from settings of plugrad."""


class EnvPoolEnvs(VectorEnvs):
    """Environments in a pool of native threads; their running episodes cannot be saved.

    A pool resets an environment in the step after the one in which its episode ends, as `AutoresetMode.NEXT_STEP` says.
    Its seeds are set when it is made, so each `reset` makes a new pool.

    Args:
        env_id: of envpool, such as `"Pong-v5"`.
        env_config: further arguments of `envpool.make`, such as `{"stack_num": 4}`.
        num_envs: how many there are.
        num_threads: that step them, unless `env_config` has `num_threads`.
        info_metrics: names of numbers in its infos that are read.

    Raises:
        ConfigError: envpool has no such id, or refuses `env_config`.
        MissingFrameworkError: envpool is not installed.
    """

    resets_in_same_step = False

    def __init__(
        self,
        env_id: Any,
        env_config: Mapping[str, Any],
        *,
        num_envs: int,
        num_threads: int,
        info_metrics: Sequence[str] = (),
    ) -> None:
        spaces = envpool_spaces(env_id, env_config)
        super().__init__(name=repr(env_id), num_envs=num_envs, spaces=spaces)
        self._is_flattened = spaces.rows is not spaces.observations
        self._env_id, self._env_config = env_id, {"num_threads": num_threads, **env_config}
        self._pool: Any = None
        self._info_metrics = info_metrics

    def reset(self, entropy: tuple[int, ...]) -> tuple[Array, dict[str, Any]]:
        """See `VectorEnvs`."""
        seeds = reset_seeds(entropy or (fresh_seed(),), self.num_envs)
        self._pool = None  # its threads end before others begin
        given = {"num_envs": self.num_envs, "seed": [seed % 2**31 for seed in seeds or ()]}
        self._pool = _call_envpool("make_gymnasium", self._env_id, self._env_config, **given)
        with _quiet():
            observations, _ = self._pool.reset()
        return self._rows(observations), {}

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """See `VectorEnvs`."""
        observations, rewards, terminated, truncated, infos = self._pool.step(actions)
        read = {}
        if self._info_metrics:
            ended = np.asarray(terminated | truncated, np.bool_)
            read[INFO_METRICS] = numbers_of_infos(
                self._info_metrics, infos, ended, self.name, resets_in_same_step=False
            )
        return self._rows(observations), rewards, terminated, truncated, read

    def close(self) -> None:
        """See `VectorEnvs`."""
        self._pool = None

    def _rows(self, observations: Any) -> Array:
        return flat_rows(self.observation_space, observations) if self._is_flattened else observations


def envpool_spaces(env_id: Any, env_config: Mapping[str, Any]) -> EnvSpaces:
    """The spaces of an environment of envpool; makes none.

    Args:
        env_id: of envpool.
        env_config: further arguments of `envpool.make`.

    Returns:
        Its spaces. Bounds that only mean "any float" are infinite.

    Raises:
        ConfigError: envpool has no such id, or refuses `env_config`.
        MissingFrameworkError: envpool is not installed.
    """
    with _quiet():
        spec = _call_envpool("make_spec", env_id, env_config)
        observations = _unbounded(spec.observation_space)
        actions = spec.action_space
    if spec.config.max_num_players > 1 or not isinstance(actions, Space):
        raise ConfigError(
            f"{env_id!r} of envpool has several players or actions; give one that has one", env=env_id
        )
    rows = observations if is_box(observations) else flatten_space(observations)
    return EnvSpaces(rows, observations, actions)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Gymnasium's warnings where envpool makes spaces: it gives the bounds of float32 as float64."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _call_envpool(function: str, env_id: Any, env_config: Mapping[str, Any], **own: Any) -> Any:
    """Call a function of envpool that takes an id."""
    require_extra("envpool", "envpool", 'vectorization_mode="envpool"')
    envpool = import_module("envpool")
    known = envpool.list_all_envs()
    if env_id not in known:
        raise ConfigError(
            f"envpool has no environment {env_id!r}; `envpool.list_all_envs()` says which it has."
            + did_you_mean(str(env_id).rpartition("/")[2].rpartition(":")[2], known),
            env=env_id,
        )
    for name in OWN:
        if name in env_config:
            raise ConfigError(
                f"env_config: {name!r} of envpool follows from other settings; take it out", field=name
            )
    try:
        return getattr(envpool, function)(env_id, **env_config, **own)
    except (TypeError, ValueError, AssertionError, RuntimeError, KeyError, AttributeError) as error:
        given = f" with env_config={dict(env_config)}" if env_config else ""
        raise ConfigError(f"envpool cannot make {env_id!r}{given}: {error}", env=env_id) from error


def _unbounded(space: Space[Any]) -> Space[Any]:
    """The space with infinite bounds where envpool has the limits of C++, the lower of which is a tiny number."""
    return with_leaves(space, map(_unbounded_leaf, _leaves(space)))


def _leaves(space: Space[Any]) -> Iterator[Space[Any]]:
    return (leaf for _, leaf in leaves(space))


def _unbounded_leaf(leaf: Space[Any]) -> Space[Any]:
    if not isinstance(leaf, Box) or leaf.dtype is None or leaf.dtype.kind != "f":
        return leaf
    limits = np.finfo(leaf.dtype)
    low = np.where(np.isin(leaf.low, (limits.tiny, limits.min)), -np.inf, leaf.low)
    high = np.where(leaf.high == limits.max, np.inf, leaf.high)
    return Box(low.astype(leaf.dtype), high.astype(leaf.dtype), dtype=leaf.dtype.type)
