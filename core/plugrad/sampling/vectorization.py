"""Make the environments of an env runner, in the mode that its config names."""

from contextlib import closing
from dataclasses import replace

from gymnasium.vector import SyncVectorEnv

from plugrad.importing.names import in_main_by_value
from plugrad.sampling.async_envs.envs import AsyncEnvs, num_usable_cores
from plugrad.sampling.environments import env_makers, make_env, make_vector_env
from plugrad.sampling.envpool_envs import EnvPoolEnvs, envpool_spaces
from plugrad.sampling.flat_observations import env_observation_space
from plugrad.sampling.named_envs import env_name, spec_to_send
from plugrad.sampling.settings import SamplingConfig
from plugrad.sampling.vector_envs import EnvSpaces, NativeEnvs, SyncEnvs, VectorEnvs
from plugrad.sampling.wrappers import EnvWrappers

ENVPOOL_OPTIONS = "give envpool's own options, such as .environment(env_config={'stack_num': 4})"


def make_vector_envs(config: SamplingConfig) -> VectorEnvs:
    """Make the environments of an env runner.

    Args:
        config: names the environment, how many there are, and how they step together.

    Returns:
        `config.num_envs_per_env_runner` environments.

    Raises:
        ConfigError: see `make_vector_env`.
        EnvWorkerError: a worker process died, or did not make its environments within `build_timeout_s`.
    """
    if config.vectorization_mode == "async":
        return _make_async(config)
    if config.vectorization_mode == "envpool":
        return _make_envpool(config)
    envs = make_vector_env(
        config.env,
        config.env_config,
        num_envs=config.num_envs_per_env_runner,
        vectorization_mode=config.vectorization_mode,
        wrappers=EnvWrappers.of(config),
        info_metrics=tuple(config.info_metrics),
    )
    name = env_name(config.env)
    if isinstance(envs, SyncVectorEnv):
        return SyncEnvs(envs, name=name)
    return NativeEnvs(envs, name=name, info_metrics=tuple(config.info_metrics))


def _make_async(config: SamplingConfig) -> AsyncEnvs:
    wrappers = EnvWrappers.of(config)
    wrappers = replace(wrappers, env_wrappers=in_main_by_value(wrappers.env_wrappers, where="env_wrappers"))
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


def _make_envpool(config: SamplingConfig) -> EnvPoolEnvs:
    EnvWrappers.of(config).refuse("envpool", instead=ENVPOOL_OPTIONS)
    return EnvPoolEnvs(
        config.env,
        config.env_config,
        num_envs=config.num_envs_per_env_runner,
        num_threads=_num_processors(config),
        info_metrics=tuple(config.info_metrics),
    )


def _num_processors(config: SamplingConfig) -> int:
    """How many environments of one env runner can step at the same time: those of this machine share its cores."""
    num_cores = num_usable_cores() // max(1, config.num_env_runners)
    return max(1, min(num_cores, config.num_envs_per_env_runner))


def get_env_spaces(config: SamplingConfig) -> EnvSpaces:
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
    with closing(make_env(config.env, config.env_config, wrappers=wrappers)) as env:
        return EnvSpaces(env.observation_space, env_observation_space(env), env.action_space)
