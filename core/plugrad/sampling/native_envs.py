"""Environments with a vectorised version of their own, whose answers are checked."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from plugrad.errors import ConfigError, EnvContractError
from plugrad.observations.rows import cast_exactly
from plugrad.sampling.env_calls import EnvCall
from plugrad.sampling.env_checker import describe
from plugrad.sampling.info_metrics import INFO_METRICS, numbers_of_infos
from plugrad.sampling.named_envs import EnvSource, env_name, import_attribute, make_named
from plugrad.sampling.vector_envs import EnvSpaces, VectorEnvs, reset_seeds
from plugrad.spaces.layout import stored_space
from plugrad.types import Array


class CheckedVectorEnv(VectorWrapper):
    """An environment's own vectorised version: its answers are checked, and are arrays of numbers and of bools.

    Args:
        env: the vectorised environment.
        name: for errors.

    Raises:
        EnvContractError: by `reset` and `step`, if an array has another shape or holds no numbers, or episodes do not
            end as the environment's `autoreset_mode` says.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._shapes = {"observations": (env.num_envs, *(env.single_observation_space.shape or ()))}
        self._shapes |= dict.fromkeys(("rewards", "terminated", "truncated"), (env.num_envs,))
        mode = AutoresetMode(env.metadata["autoreset_mode"])
        self._resets_in_same_step = mode == AutoresetMode.SAME_STEP
        self._check_ends = self._check_final if self._resets_in_same_step else self._check_reset
        self._resets_next = np.zeros(env.num_envs, np.bool_)
        self._dtype = env.single_observation_space.dtype

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        """Reset all."""
        observations, infos = self.env.reset(**settings)
        self._resets_next[:] = False
        return self._observations(observations), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        observations = self._observations(observations)
        rewards = self._numbers("rewards", rewards)
        terminated, truncated = self._flags("terminated", terminated), self._flags("truncated", truncated)
        ended = terminated | truncated
        self._check_ends(ended, infos)
        return observations, rewards, terminated, truncated, self._with_own_ends(ended, infos)

    def _numbers(self, column: str, values: Any) -> Array:
        found = np.asarray(values)
        if found.shape != self._shapes[column] or found.dtype.kind not in "biuf":
            raise EnvContractError(
                f"the vectorised {self._name} returned {column} {describe(values)}; expected: numbers of shape "
                f"{self._shapes[column]}",
                env=self._name,
                expected=self._shapes[column],
                found=found.shape,
            )
        return found

    def _observations(self, values: Any) -> Array:
        numbers = self._numbers("observations", values)
        found = cast_exactly(numbers, self._dtype)
        if found is None:
            raise EnvContractError(
                f"the vectorised {self._name} returned observations {describe(numbers)}; expected: numbers that the "
                f"dtype of its observation space, {self._dtype}, can hold: return {self._dtype}, or declare another "
                "dtype",
                env=self._name,
                expected=self._dtype,
                found=numbers.dtype,
            )
        return found

    def _flags(self, column: str, values: Any) -> Array:
        found = self._numbers(column, values)
        if found.dtype != np.bool_ and not np.isin(found, (0, 1)).all():
            raise EnvContractError(
                f"the vectorised {self._name} returned {column} {describe(values)}; expected: True and False",
                env=self._name,
                found=found,
            )
        return found.astype(np.bool_, copy=False)

    def _with_own_ends(self, ended: Array, infos: Mapping[str, Any]) -> dict[str, Any]:
        """The infos with final observations only where an episode ended; array programs have them in every step."""
        if "final_obs" not in infos:
            return dict(infos)
        others = {name: value for name, value in infos.items() if name not in ("final_obs", "_final_obs")}
        if not self._resets_in_same_step or not np.count_nonzero(ended):
            return others
        rows = np.flatnonzero(ended)
        final = np.empty(len(ended), object)
        for row in rows:
            given = np.asarray(infos["final_obs"][row])
            found = cast_exactly(given, self._dtype) if given.dtype.kind in "biuf" else None
            if found is None or found.shape != self._shapes["observations"][1:]:
                self._raise(
                    np.arange(len(ended)) == row,
                    f"gave infos['final_obs'] {describe(infos['final_obs'][row])}",
                    f"an observation of shape {self._shapes['observations'][1:]} and dtype {self._dtype}",
                )
            final[row] = found
        return {**others, "final_obs": final, "_final_obs": ended}

    def _check_final(self, ended: Array, infos: Mapping[str, Any]) -> None:
        """Where an episode ended there is its last observation, since `observations` begin the next one."""
        if not np.count_nonzero(ended):
            return
        given = infos.get("_final_obs")
        without = ended if given is None or "final_obs" not in infos else ended & ~np.asarray(given, np.bool_)
        if np.count_nonzero(without):
            self._raise(
                without,
                "ended an episode without infos['final_obs']",
                "with autoreset_mode=SAME_STEP, the last observation of each episode that ended, and "
                "infos['_final_obs'], bool [N], which says where there is one",
            )

    def _check_reset(self, ended: Array, infos: Mapping[str, Any]) -> None:
        """The step after an end only resets."""
        again = ended & self._resets_next
        if np.count_nonzero(again):
            self._raise(
                again,
                "ended an episode in the step after an end",
                "with autoreset_mode=NEXT_STEP, that step only resets. If episodes end and begin in one step, "
                "metadata must say AutoresetMode.SAME_STEP",
            )
        self._resets_next = ended

    def _raise(self, where: Array, found: str, expected: str) -> None:
        index = int(np.flatnonzero(where)[0])
        raise EnvContractError(
            f"environment {index} of the vectorised {self._name} {found}; expected: {expected}",
            env=self._name,
            index=index,
            found=found,
            expected=expected,
        )


def _name_known_autoreset(native: VectorEnv[Any, Any, Any]) -> None:
    """Add the mode to an environment that names none, where its base class has only one.

    Subclasses of Gymnasium's functional environments that have metadata of their own name no mode.
    """
    bases = {base.__module__ for base in type(native.unwrapped).__mro__}
    is_functional = any(module.startswith("gymnasium.envs.functional_") for module in bases)
    if "autoreset_mode" not in native.metadata and is_functional:
        native.metadata = {**native.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}


def make_own_vector_env(
    env: EnvSource | None, env_config: Mapping[str, Any], num_envs: int
) -> VectorEnv[Any, Any, Any]:
    """Make an environment's own vectorised version, with Box observations; nothing checks its answers.

    Args:
        env: a Gymnasium id with a vectorised version, or a class or function that makes a vector environment of
            `num_envs` and `env_config`.
        env_config: keyword arguments of the environment.
        num_envs: how many step together.

    Returns:
        The vector environment.

    Raises:
        ConfigError: there is no vectorised version, or it resets in a way that is not supported.
    """

    def make(env_id: str, num_envs: int, **kwargs: Any) -> Any:
        return gym.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **kwargs)

    source = import_attribute(env) if isinstance(env, str) else env
    is_single = isinstance(source, type) and issubclass(source, gym.Env)
    native = None if is_single else make_named(env, {**env_config, "num_envs": num_envs}, make)
    if not isinstance(native, VectorEnv):
        raise ConfigError(
            f"{env_name(env)} is a single environment; expected: a Gymnasium id with a vectorised version, or a class "
            "or function that makes a gymnasium.vector.VectorEnv of num_envs"
        )
    if native.num_envs != num_envs:
        raise ConfigError(
            f"the vectorised {env_name(env)} has {native.num_envs} environments, and num_envs={num_envs} was asked"
        )
    _name_known_autoreset(native)
    modes = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
    if native.metadata.get("autoreset_mode") not in (*modes, *(mode.value for mode in modes)):
        raise ConfigError(
            f"the vectorised {env_name(env)} resets by autoreset_mode={native.metadata.get('autoreset_mode')!r}; "
            f'its metadata must name one of {", ".join(map(str, modes))}, or take vectorization_mode="sync"'
        )
    stored_space(native.single_observation_space)
    return native


def make_native_vector_env(
    env: EnvSource | None, env_config: Mapping[str, Any], num_envs: int
) -> VectorEnv[Any, Any, Any]:
    """`make_own_vector_env`, with the same arguments, whose answers are checked: a `CheckedVectorEnv`."""
    return CheckedVectorEnv(make_own_vector_env(env, env_config, num_envs), name=env_name(env))


class NativeEnvs(VectorEnvs):
    """A vector environment of its own kind; its running episodes cannot be saved.

    Args:
        envs: with Box observations. It resets in the step in which an episode ends, or in the next one.
        name: of the environment, for errors.
        info_metrics: names of numbers in its infos that are read.
    """

    def __init__(
        self, envs: VectorEnv[Any, Any, Any], *, name: str, info_metrics: Sequence[str] = ()
    ) -> None:
        rows = envs.single_observation_space
        spaces = EnvSpaces(rows, rows, envs.single_action_space)
        super().__init__(name=name, num_envs=envs.num_envs, spaces=spaces)
        self.resets_in_same_step = AutoresetMode(envs.metadata["autoreset_mode"]) == AutoresetMode.SAME_STEP
        self._envs, self._info_metrics = envs, info_metrics

    def reset(self, entropy: tuple[int, ...]) -> tuple[Array, dict[str, Any]]:
        """See `VectorEnvs`."""
        seeds = reset_seeds(entropy, 1)
        return self._envs.reset(seed=None if seeds is None else seeds[0])

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """See `VectorEnvs`."""
        observations, rewards, terminated, truncated, infos = self._envs.step(actions)
        if self._info_metrics:
            infos[INFO_METRICS] = numbers_of_infos(
                self._info_metrics,
                infos,
                terminated | truncated,
                self.name,
                resets_in_same_step=self.resets_in_same_step,
            )
        return observations, rewards, terminated, truncated, infos

    def call_envs(self, call: EnvCall) -> list[Any]:
        """See `VectorEnvs`; the vector environment is called once."""
        return [call.run(self._envs, self.name)]

    def close(self) -> None:
        """See `VectorEnvs`."""
        self._envs.close()
