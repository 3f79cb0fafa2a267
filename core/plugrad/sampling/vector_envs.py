"""The interface of environments that step together, as an env runner uses it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from plugrad.sampling.environments import reset_seeds
from plugrad.sampling.flat_observations import env_observation_space
from plugrad.sampling.info_metrics import INFO_METRICS, numbers_of_infos
from plugrad.sampling.mask_sources import mask_source
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.types import Array


class RunningEpisode(NamedTuple):
    """Where an episode stands that was replayed or has just begun.

    Args:
        observation: the present one, as the environment gives it; None: the replayed episode ended early.
        info: of this observation.
        num_steps: of the episode so far.
    """

    observation: Array | None
    info: Mapping[str, Any]
    num_steps: int


class EnvSpaces(NamedTuple):
    """The spaces of one environment.

    Args:
        rows: of one observation as `reset` and `step` return it: flattened, unless it was a Box.
        observations: of one observation before it is flattened.
        actions: of one action.
    """

    rows: Space[Any]
    observations: Space[Any]
    actions: Space[Any]


class VectorEnvs(ABC):
    """Environments that step together.

    Args:
        name: of the environment, for errors.
        num_envs: how many there are.
        spaces: of one environment.

    Attributes:
        can_replay: whether running episodes can be saved and replayed.
        resets_in_same_step: whether an environment resets in the step in which its episode ends, not in the next one.
    """

    can_replay = False
    resets_in_same_step = True

    def __init__(self, *, name: str, num_envs: int, spaces: EnvSpaces) -> None:
        self.name = name
        self.num_envs = num_envs
        self.spaces = spaces
        self.row_space, self.observation_space, self.action_space = spaces

    @property
    def mask_source(self) -> str:
        """By which convention the environments give action masks, for the log."""
        return mask_source(())

    @abstractmethod
    def reset(self, entropy: tuple[int, ...]) -> tuple[Array, dict[str, Any]]:
        """Begin new episodes everywhere.

        Args:
            entropy: whole numbers that seed the environments; none: from the system.

        Returns:
            `(observations [N, ...], infos)`, as of a Gymnasium vector environment.

        Raises:
            EnvContractError: an environment broke Gymnasium's contract.
        """

    @abstractmethod
    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step every environment.

        Args:
            actions: of all environments, in the structure of the action space.

        Returns:
            `(observations [N, ...], rewards [N], terminated [N], truncated [N], infos)`, as of a Gymnasium vector
            environment. The next call may overwrite the arrays.

        Raises:
            EnvContractError: an environment broke Gymnasium's contract.
        """

    def get_running_episodes(self) -> dict[str, Any] | None:
        """States of the running episodes for `replay`, by the index of their environment.

        Returns:
            None if they cannot be replayed, or one has more than `replayable_env.MAX_ACTIONS` steps.
        """
        return None

    def replay(self, states: Mapping[str, Any]) -> Sequence[RunningEpisode]:
        """Replay the episodes of `get_running_episodes`, where `can_replay`."""
        raise NotImplementedError

    def restart(self, index: int) -> RunningEpisode:
        """Begin the next episode in one environment, where `can_replay`."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Close the environments; calling it again does nothing."""


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

    def close(self) -> None:
        """See `VectorEnvs`."""
        self._envs.close()


class SyncEnvs(VectorEnvs):
    """Single environments that step one after the other; their running episodes can be saved.

    Args:
        envs: of `ReplayableEnv`s, each of which resets in the step in which its episode ends.
        name: of the environment, for errors.

    Attributes:
        replayable: the environments.
    """

    can_replay = True

    def __init__(self, envs: SyncVectorEnv, *, name: str) -> None:
        self._envs = envs
        self.replayable: Sequence[ReplayableEnv] = envs.envs  # type: ignore[assignment]
        spaces = EnvSpaces(
            envs.single_observation_space,
            env_observation_space(self.replayable[0].env),
            envs.single_action_space,
        )
        super().__init__(name=name, num_envs=envs.num_envs, spaces=spaces)

    @property
    def mask_source(self) -> str:
        """See `VectorEnvs`."""
        return mask_source(self.replayable)

    def reset(self, entropy: tuple[int, ...]) -> tuple[Array, dict[str, Any]]:
        """See `VectorEnvs`."""
        return self.reset_seeded(reset_seeds(entropy, self.num_envs))

    def reset_seeded(self, seeds: list[int] | None) -> tuple[Array, dict[str, Any]]:
        """See `reset`; `seeds` has one for each environment."""
        try:
            return self._envs.reset(seed=seeds)  # type: ignore[arg-type]
        except (TypeError, ValueError, AttributeError):
            self._check_last_answers()
            raise

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """See `VectorEnvs`."""
        try:
            return self._envs.step(actions)
        except (TypeError, ValueError, AttributeError):
            self._check_last_answers()
            raise

    def get_running_episodes(self) -> dict[str, Any] | None:
        """See `VectorEnvs`."""
        states = {str(index): env.get_state() for index, env in enumerate(self.replayable)}
        return None if any(state["actions"] is None for state in states.values()) else states

    def replay(self, states: Mapping[str, Any]) -> Sequence[RunningEpisode]:
        """See `VectorEnvs`."""
        return [_replayed(env, states[str(index)]) for index, env in enumerate(self.replayable)]

    def restart(self, index: int) -> RunningEpisode:
        """See `VectorEnvs`."""
        observation, info = self.replayable[index].reset()
        return RunningEpisode(np.asarray(observation), info, 0)

    def close(self) -> None:
        """See `VectorEnvs`."""
        self._envs.close()

    def _check_last_answers(self) -> None:
        """Raise `EnvContractError` if an environment's last answer is why they could not be stacked."""
        for env in self.replayable:
            env.check_last_answers()


def _replayed(env: ReplayableEnv, state: Mapping[str, Any]) -> RunningEpisode:
    observation = env.set_state(state)
    return RunningEpisode(observation, env.last_info, env.num_steps)
