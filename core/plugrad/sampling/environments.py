"""Gymnasium environments by the names of a config, with observations as plain arrays."""

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.names import import_named
from plugrad.observations.layout import model_space, stored_space
from plugrad.sampling.contract import CheckedVectorEnv, check_spaces
from plugrad.sampling.frame_stack import stack_frames
from plugrad.sampling.mask_sources import with_mask_in_info
from plugrad.sampling.replayable_env import ReplayableEnv

EnvSource: TypeAlias = str | Callable[..., gym.Env[Any, Any]]
"""A Gymnasium id, `"package.module:Env-v0"`, `"package.module:Class"`, a class or a function."""

NAMESPACE_PACKAGES = {"ALE": "ale_py"}
"""The package that registers the ids of a namespace, where the two have different names."""

VECTORIZATION_MODES = ("sync", "vector_entry_point")


def make_env(
    env: EnvSource | None, env_config: Mapping[str, Any] | None = None, *, frame_stack: int = 1
) -> gym.Env[Any, Any]:
    """Make one environment; its observations are flattened unless they are a Box, its masks are in `info`.

    Discrete observations become one-hot rows, Dict and Tuple observations one flat row
    (`gymnasium.wrappers.FlattenObservation`).

    Args:
        env: a Gymnasium id, `"package.module:Env-v0"`, `"package.module:Class"`, a class or a function.
        env_config: keyword arguments of the environment, as in `gymnasium.make(env, **env_config)`.
        frame_stack: how many frames one observation has.

    Returns:
        An environment whose observation space is a Box.

    Raises:
        ConfigError: see `create_env`; or its observations are no numbers.
    """
    created = create_env(env, env_config)
    check_spaces(env_name(env), created)
    created = stack_frames(with_mask_in_info(created), frame_stack)
    return created if isinstance(created.observation_space, Box) else _Flattened(created)


def create_env(env: EnvSource | None, env_config: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """Make one environment as it is.

    Args:
        env: as in `make_env`.
        env_config: keyword arguments of the environment.

    Returns:
        The environment.

    Raises:
        ConfigError: there is no such environment, or it does not accept `env_config`.
    """
    created = _create(env, dict(env_config or {}), gym.make)
    if not isinstance(created, gym.Env):
        raise ConfigError(
            f"{env_name(env)} made a {type(created).__name__}, not a gymnasium.Env; "
            "give a Gymnasium id or a class derived from gymnasium.Env",
            env=env_name(env),
        )
    return created


def make_vector_env(
    env: EnvSource | None,
    env_config: Mapping[str, Any] | None = None,
    *,
    num_envs: int,
    vectorization_mode: str = "sync",
    frame_stack: int = 1,
) -> VectorEnv[Any, Any, Any]:
    """Make `num_envs` copies of an environment that step together.

    Args:
        env: as in `make_env`.
        env_config: keyword arguments of the environment.
        num_envs: how many copies, >= 1.
        vectorization_mode: `"sync"` steps single environments one after the other and resets each in the
            step in which it ends; its arrays are overwritten by the next step. `"vector_entry_point"`
            takes the environment's own vectorised version (Gymnasium ids only).
        frame_stack: how many frames one observation has.

    Returns:
        A vector environment with Box observations.

    Raises:
        ConfigError: see `make_env`; or there is no vectorised version, it resets in a way that is not supported, or
            its frames cannot be stacked.
    """
    if num_envs < 1:
        raise ConfigError(f"num_envs_per_env_runner={num_envs}: at least 1 environment is needed")
    if vectorization_mode == "sync":
        copies = [partial(_make_copy, env, env_config, index, frame_stack) for index in range(num_envs)]
        # copy=False saves a fifth of a CartPole step: a deep copy of an array that the caller copies anyway.
        return SyncVectorEnv(copies, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    if vectorization_mode == "vector_entry_point":
        if frame_stack > 1:
            raise ConfigError(
                f'frame_stack={frame_stack} needs vectorization_mode="sync": Gymnasium stacks the frames of single '
                "environments only"
            )
        return _make_native_vector_env(env, dict(env_config or {}), num_envs)
    raise ConfigError(
        f"vectorization_mode={vectorization_mode!r}; there is {', '.join(map(repr, VECTORIZATION_MODES))}."
        + did_you_mean(str(vectorization_mode), VECTORIZATION_MODES)
    )


def _make_copy(
    env: EnvSource | None, env_config: Mapping[str, Any] | None, index: int, frame_stack: int
) -> ReplayableEnv:
    single = make_env(env, env_config, frame_stack=frame_stack)
    return ReplayableEnv(single, name=env_name(env), index=index)


def get_spaces(
    env: EnvSource | None,
    env_config: Mapping[str, Any] | None = None,
    *,
    normalize_observations: bool = False,
    frame_stack: int = 1,
) -> tuple[Space[Any], Space[Any]]:
    """The observation and action space that a module for this environment is built from.

    Makes one environment and closes it.

    Args:
        env: as in `make_env`.
        env_config: keyword arguments of the environment.
        normalize_observations: whether observations are normalised.
        frame_stack: how many frames one observation has.

    Returns:
        `(observation_space, action_space)`; the first is that which a module reads, see `model_space`.

    Raises:
        ConfigError: see `make_env`.
    """
    with closing(make_env(env, env_config, frame_stack=frame_stack)) as single:
        space = env_observation_space(single)
        return model_space(space, normalized=normalize_observations), single.action_space


def reward_threshold(env: EnvSource | None) -> float | None:
    """The mean return at which an environment counts as solved, by its registration; None if that has none.

    Args:
        env: an id such as `"CartPole-v1"`, `"package.module:Env-v0"` or, of the newest version, `"CartPole"`; classes
            and functions are not registered.
    """
    if not isinstance(env, str) or _import_attribute(env) is not None:
        return None
    env_id = env.rpartition(":")[2]
    versions = {spec.version or 0: spec for spec in gym.registry.values() if env_id in _names_of(spec)}
    return versions[max(versions)].reward_threshold if versions else None


def _names_of(spec: gym.envs.registration.EnvSpec) -> tuple[str, str]:
    return spec.id, spec.id.removesuffix(f"-v{spec.version}")


def env_observation_space(env: gym.Env[Any, Any]) -> Space[Any]:
    """The space of an environment of `make_env` before its observations are flattened."""
    return env.env.observation_space if isinstance(env, _Flattened) else env.observation_space


def get_env_observation_space(
    env: EnvSource | None, env_config: Mapping[str, Any] | None = None, *, frame_stack: int = 1
) -> Space[Any]:
    """The observation space of an environment before observations are flattened.

    Makes one environment and closes it.

    Args:
        env: as in `make_env`.
        env_config: keyword arguments of the environment.
        frame_stack: how many frames one observation has.

    Returns:
        The environment's own space, of stacked frames if there are several.

    Raises:
        ConfigError: see `make_env`.
    """
    with closing(make_env(env, env_config, frame_stack=frame_stack)) as single:
        return env_observation_space(single)


class _Flattened(gym.wrappers.FlattenObservation[Any, Any, Any]):
    """The wrapper of `make_env`; a user's own `FlattenObservation` is part of the environment."""


def reset_seeds(envs: VectorEnv[Any, Any, Any], entropy: tuple[int, ...]) -> Any:
    """The argument of `envs.reset(seed=...)`: seeds mixed from `entropy`.

    Gymnasium's own `seed, seed + 1, ...` would give runners with neighbouring seeds the same environments.

    Args:
        envs: a list of seeds is returned for a `SyncVectorEnv`, one seed for others.
        entropy: whole numbers; none: None is returned.

    Returns:
        Seeds, a seed or None.
    """
    if not entropy:
        return None
    seeds = [int(seed) for seed in np.random.SeedSequence(entropy).generate_state(envs.num_envs)]
    return seeds if isinstance(envs, SyncVectorEnv) else seeds[0]


def _make_native_vector_env(
    env: EnvSource | None, env_config: dict[str, Any], num_envs: int
) -> VectorEnv[Any, Any, Any]:
    def make(env_id: str, **kwargs: Any) -> Any:
        return gym.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **kwargs)

    if not isinstance(env, str):
        raise ConfigError(
            f'vectorization_mode="vector_entry_point" needs a Gymnasium id, not {env_name(env)}'
        )
    native = _create(env, env_config, make)
    if not isinstance(native, VectorEnv):
        raise ConfigError(
            f'{env!r} is a single environment; vectorization_mode="vector_entry_point" needs an id'
        )
    modes = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
    if native.metadata.get("autoreset_mode") not in modes:
        raise ConfigError(
            f"the vectorised {env} resets by autoreset_mode={native.metadata.get('autoreset_mode')!r}; "
            f'its metadata must name one of {", ".join(map(str, modes))}, or take vectorization_mode="sync"'
        )
    stored_space(native.single_observation_space)
    return CheckedVectorEnv(native, name=env_name(env))


def _create(env: EnvSource | None, env_config: dict[str, Any], make: Callable[..., Any]) -> Any:
    """Make an environment; `make` turns a Gymnasium id into one."""
    creator = _creator(env, make)
    try:
        return creator(**env_config)
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        raise _unknown(str(env), error) from error
    except (gym.error.Error, TypeError, ImportError) as error:
        given = f" with env_config={env_config}" if env_config else ""
        raise ConfigError(
            f"cannot make the environment {env_name(env)}{given}: {error}", env=env_name(env)
        ) from error


def _creator(env: EnvSource | None, make: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(env, str):
        found = _import_attribute(env)
        return found if found is not None else lambda **kwargs: make(env, **kwargs)
    if callable(env):
        return env
    raise ConfigError(
        f"no environment to make: env={env!r}. Give a Gymnasium id, a class or 'package.module:Class': "
        "config.environment('CartPole-v1')",
        env=env,
    )


def _import_attribute(env: str) -> Callable[..., Any] | None:
    """The class that `"package.module:Class"` names; None if `env` is an id, with or without a module."""
    module_name, colon, attribute = env.partition(":")
    if not colon:
        return None
    module = import_named(module_name, env, where="environment")
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None and not _is_id(attribute):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise ConfigError(
            f"environment {env!r}: {module_name!r} has no {attribute!r} and registers no such id."
            + did_you_mean(attribute, classes),
            env=env,
        )
    return found  # type: ignore[no-any-return]


def _is_id(name: str) -> bool:
    # "Ant-v5" or "namespace/Ant" cannot be the name of a class; "Ant" without a version could be either.
    return not name.replace(".", "").isidentifier() or name in gym.registry


def _unknown(env: str, error: Exception) -> ConfigError:
    env_id = env.rpartition(":")[2]
    hint = _namespace_hint(env_id) or did_you_mean(env_id, gym.registry)
    hint = hint or " Is the package that registers it imported? 'package.module:Id-v0'"
    return ConfigError(f"no environment {env!r}.{hint} ({error})", env=env)


def _namespace_hint(env_id: str) -> str:
    """What to type for `"ALE/Pong-v5"` while nothing has registered an id that begins with `ALE/`."""
    namespace, slash, _ = env_id.partition("/")
    if not slash or any(known.startswith(f"{namespace}/") for known in gym.registry):
        return ""
    package = NAMESPACE_PACKAGES.get(namespace, "package")
    return f" No imported package registers ids {namespace}/...: name the one that does, as in '{package}:{env_id}'."


def env_name(env: object) -> str:
    """The name of an environment for messages: `'CartPole-v1'`, or the name of a class."""
    return repr(env) if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
