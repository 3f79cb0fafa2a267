"""Make the environments of an env runner, in the mode that its config names."""

import logging
from contextlib import closing
from typing import Any

from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv

from plugrad.config import Config
from plugrad.importing.names import in_main_by_value
from plugrad.observations import model_space
from plugrad.sampling.async_envs.envs import AsyncEnvs, num_usable_cores
from plugrad.sampling.environments import env_makers, make_env
from plugrad.sampling.envpool_envs import EnvPoolEnvs, envpool_spaces
from plugrad.sampling.flat_observations import env_observation_space
from plugrad.sampling.named_envs import env_name, import_attribute, spec_to_send
from plugrad.sampling.native_envs import (
    CheckedVectorEnv,
    NativeEnvs,
    make_native_vector_env,
    make_own_vector_env,
)
from plugrad.sampling.tensor_envs import ArraysOfTensors, TensorEnvs, Tensors
from plugrad.sampling.vector_envs import EnvSpaces, LeanSyncVectorEnv, SyncEnvs, VectorEnvs
from plugrad.sampling.wrappers import EnvWrappers
from plugrad.spaces.fit import NAMES, check_fit

_log = logging.getLogger("plugrad")

ENVPOOL_OPTIONS = "give envpool's own options, such as .environment(env_config={'stack_num': 4})"


def make_vector_envs(config: Config, tensors: Tensors | None = None) -> VectorEnvs:
    """Make the environments of an env runner that takes numpy arrays.

    Args:
        config: names the environment, how many there are, and how they step together.
        tensors: of the learner, for environments of tensors.

    Returns:
        `config.num_envs_per_env_runner` environments.

    Raises:
        ConfigError: see `make_env` and `make_native_vector_env`; or a setting cannot be in this mode.
        EnvWorkerError: a worker process died, or did not make its environments within `build_timeout_s`.
    """
    if config.has_env_workers:
        return _make_async(config)
    if config.vectorization_mode == "envpool":
        return _make_envpool(config)
    name, numbers = env_name(config.env), tuple(config.info_metrics)
    if config.gives_tensors:
        assert tensors is not None
        arrays = ArraysOfTensors(make_tensor_env(config), tensors)
        return NativeEnvs(CheckedVectorEnv(arrays, name=name), name=name, info_metrics=numbers)
    wrappers, num_envs = EnvWrappers.of(config), config.num_envs_per_env_runner
    if config.vectorization_mode == "vector_entry_point":
        wrappers.refuse("vector_entry_point", instead="register a vectorised version that is wrapped already")
        native = make_native_vector_env(config.env, config.env_config, num_envs)
        return NativeEnvs(native, name=name, info_metrics=numbers)
    makers = env_makers(config.env, config.env_config, num_envs=num_envs, wrappers=wrappers)
    return SyncEnvs(LeanSyncVectorEnv(makers, numbers), name=name)


def make_tensor_env(config: Config) -> VectorEnv[Any, Any, Any]:
    """Make the vector environment of `vectorization_mode="tensors"`.

    Args:
        config: names it: a Gymnasium id with a vectorised version, or a class or function that is called with
            `num_envs` and `env_config`.

    Returns:
        The environments of an env runner; nothing checks their answers.

    Raises:
        ConfigError: see `make_own_vector_env`, or a setting wraps single environments.
    """
    EnvWrappers.of(config).refuse("tensors", instead="wrap the vector environment in its own function")
    return make_own_vector_env(config.env, config.env_config, config.num_envs_per_env_runner)


def _make_async(config: Config) -> AsyncEnvs:
    wrappers = EnvWrappers.of(config).for_another_process()
    env, num_envs = in_main_by_value(config.env, where="env"), config.num_envs_per_env_runner
    return AsyncEnvs(
        env_makers(env, config.env_config, num_envs=num_envs, wrappers=wrappers),
        name=env_name(config.env),
        spec=spec_to_send(config.env),
        num_workers=_num_processors(config),
        timeout_s=config.timeout_s,
        build_timeout_s=config.build_timeout_s,
        info_metrics=tuple(config.info_metrics),
    )


def _make_envpool(config: Config) -> EnvPoolEnvs:
    EnvWrappers.of(config).refuse("envpool", instead=ENVPOOL_OPTIONS)
    return EnvPoolEnvs(
        config.env,
        config.env_config,
        num_envs=config.num_envs_per_env_runner,
        num_threads=_num_processors(config),
        info_metrics=tuple(config.info_metrics),
    )


def steps_per_env(config: Config) -> int:
    """Steps of each environment in one sample: `rollout_fragment_length`, else its share of `train_batch_size`.

    The share is rounded up: a batch has at least `train_batch_size` steps, as in RLlib.
    """
    if config.rollout_fragment_length is not None:
        return config.rollout_fragment_length
    return -(-config.train_batch_size // num_environments(config))


def num_environments(config: Config) -> int:
    """The number of environments in all env runners."""
    return max(1, config.num_env_runners) * config.num_envs_per_env_runner


def samples_per_batch(config: Config) -> int:
    """Samples of all environments that together have at least `train_batch_size` steps: 1, or as many as it takes."""
    return -(-config.train_batch_size // (num_environments(config) * steps_per_env(config)))


def warn_of_another_batch_size(config: Config) -> None:
    """Log that a batch of whole samples does not have `train_batch_size` steps, if that is so."""
    environments, steps, samples = num_environments(config), steps_per_env(config), samples_per_batch(config)
    if environments * steps * samples != config.train_batch_size:
        _log.warning(
            "train_batch_size=%d, and an update is on %d environment steps: %s%d in each of %d environments%s",
            config.train_batch_size,
            environments * steps * samples,
            "" if samples == 1 else f"{samples} times ",
            steps,
            environments,
            "" if config.rollout_fragment_length is None else ", as rollout_fragment_length says",
        )


def of_one_environment(config: Config) -> Config:
    """The settings of one environment that steps in this process, such as one that is shown."""
    return config.changed(num_envs_per_env_runner=1, vectorization_mode="sync")


def _num_processors(config: Config) -> int:
    """How many environments of one env runner can step at the same time: those of this machine share its cores."""
    num_cores = num_usable_cores() // max(1, config.num_env_runners)
    return max(1, min(num_cores, config.num_envs_per_env_runner))


def get_env_spaces(config: Config) -> EnvSpaces:
    """The spaces of the environment of a config, which has one agent.

    Makes one environment and closes it, or asks envpool.

    Args:
        config: names the environment, and what is put around it.

    Returns:
        Its spaces.

    Raises:
        ConfigError: see `make_env` and `envpool_spaces`.
    """
    wrappers = EnvWrappers.of(config)
    if config.vectorization_mode == "envpool":
        wrappers.refuse("envpool", instead=ENVPOOL_OPTIONS)
        return envpool_spaces(config.env, config.env_config)
    is_called = not isinstance(config.env, str) or import_attribute(config.env) is not None
    if config.gives_tensors or (config.makes_vector_env and is_called):
        with closing(make_own_vector_env(config.env, config.env_config, 1)) as envs:
            rows = envs.single_observation_space
            return EnvSpaces(rows, rows, envs.single_action_space)
    with closing(make_env(config.env, config.env_config, wrappers=wrappers)) as env:
        return EnvSpaces(env.observation_space, env_observation_space(env), env.action_space)


def check_fits_settings(config: Config, envs: VectorEnvs | TensorEnvs, observation_space: Space[Any]) -> None:
    """Refuse environments whose spaces do not fit those of the settings, for which modules are built.

    Args:
        config: the settings.
        envs: the environments.
        observation_space: as a policy sees their observations.

    Raises:
        SpaceMismatchError: names the part that differs.
    """
    for name, space in zip(NAMES, (observation_space, envs.action_space), strict=True):
        asked = getattr(config, name)
        if asked is None:
            continue
        if name == "observation_space":
            asked = model_space(asked, normalized=config.normalize_observations)
        check_fit(
            name,
            asked,
            space,
            where=f"the settings, such as those of a checkpoint (asked), and environment {envs.name} (found)",
            to_type=f"Give an environment of the same spaces, or leave out {name} in .environment(...)",
            whatever_bounds=config.allow_other_bounds,
            rows_of="asked",
            of_other_order=f"vectorization_mode={config.vectorization_mode!r} makes rows in the environment's: use "
            '"sync" or "async"',
        )
