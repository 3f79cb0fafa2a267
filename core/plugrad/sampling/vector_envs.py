"""Environments that step together: the interface for an env runner, and those that step one after the other."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate

from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.sampling.atari import LIFE_LOST
from plugrad.sampling.env_calls import EnvCall
from plugrad.sampling.flat_observations import env_observation_space
from plugrad.sampling.info_metrics import INFO_METRICS, numbers_of_info
from plugrad.sampling.mask_sources import mask_source
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.sampling.watched_episodes import ENDED, STARTED, STEPPED, EpisodeNotifier, WatchedEnv
from plugrad.types import Array


def reset_seeds(entropy: tuple[int, ...], num_seeds: int) -> list[int] | None:
    """Seeds for the resets of environments, mixed from `entropy`.

    Gymnasium's own `seed, seed + 1, ...` would give runners with neighbouring seeds the same environments.

    Args:
        entropy: whole numbers; none: the system seeds the environments.
        num_seeds: how many, >= 1.

    Returns:
        The seeds. None: there is no entropy.
    """
    if not entropy:
        return None
    return [int(seed) for seed in np.random.SeedSequence(entropy).generate_state(num_seeds)]


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

    @property
    def envs(self) -> Sequence[Any]:
        """The environments with their wrappers, where they are objects of this process; else none."""
        return ()

    def notify_of_episodes(self, notifier: EpisodeNotifier, running_id: Callable[[int], str]) -> None:
        """Let listeners hear of all episodes.

        Args:
            notifier: tells listeners.
            running_id: of an environment, the id of its running episode.

        Raises:
            ConfigError: the environments are no objects of this process.
        """
        raise ConfigError(
            f"a listener has a hook {STARTED}, {STEPPED} or {ENDED}, and environments of {self.name} step elsewhere: "
            'take vectorization_mode="sync"; env_runners(num_env_runners=...) steps them at the same time',
            env=self.name,
        )

    def call_envs(self, call: EnvCall) -> list[Any]:
        """Do something to every environment; see `CallsEnvs.call`.

        Raises:
            ConfigError: these are no objects of Python, or have no such method.
        """
        raise ConfigError(
            f"{call.kind}({call.name!r}): environments of {self.name} are no objects of Python that could be called: "
            'take vectorization_mode="sync" or "async"',
            env=self.name,
        )

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

    @property
    def envs(self) -> Sequence[Any]:
        """See `VectorEnvs`."""
        return [each.env for each in self.replayable]

    def notify_of_episodes(self, notifier: EpisodeNotifier, running_id: Callable[[int], str]) -> None:
        """See `VectorEnvs`."""
        self._envs.envs = [
            WatchedEnv(each, n, notifier, running_id) for n, each in enumerate(self.replayable)
        ]

    def call_envs(self, call: EnvCall) -> list[Any]:
        """See `VectorEnvs`."""
        return [call.run(each.env, self.name) for each in self.replayable]

    def get_running_episodes(self) -> dict[str, Any] | None:
        """See `VectorEnvs`."""
        states = {str(index): env.get_state() for index, env in enumerate(self.replayable)}
        return None if any(state["actions"] is None for state in states.values()) else states

    def replay(self, states: Mapping[str, Any]) -> Sequence[RunningEpisode]:
        """See `VectorEnvs`."""
        return [_replayed(env, states[str(index)]) for index, env in enumerate(self.replayable)]

    def restart(self, index: int) -> RunningEpisode:
        """See `VectorEnvs`."""
        observation, info = self._envs.envs[index].reset()
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


MASK = Columns.ACTION_MASK
READ_INFOS = MASK, LIFE_LOST
"""What an env runner reads of the infos of environments, beside those of an episode's end."""


class LeanSyncVectorEnv(SyncVectorEnv):
    """Gymnasium's `SyncVectorEnv` without what no env runner reads: other infos than `READ_INFOS`, and copies.

    MuJoCo's environments give ten infos a step: to stack them takes longer than acting.

    Args:
        env_fns: each makes an environment, which gives flags as bools.
        info_metrics: names of numbers that are also read, as `INFO_METRICS`.
    """

    def __init__(self, env_fns: Any, info_metrics: Sequence[str] = ()) -> None:
        super().__init__(env_fns, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
        self._info_metrics = tuple(info_metrics)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step all; the next step overwrites the observations.

        Args:
            actions: `[N, ...]`, in the structure of the action space.

        Returns:
            As `SyncVectorEnv.step`.
        """
        infos: dict[str, Any] = {}
        rewards = np.empty(self.num_envs)
        terminations, truncations = np.empty((2, self.num_envs), np.bool_)
        if self._info_metrics:
            infos[INFO_METRICS] = numbers = np.empty((self.num_envs, len(self._info_metrics)))
        for n, (env, action) in enumerate(zip(self.envs, iterate(self.action_space, actions), strict=True)):
            row, rewards[n], terminations[n], truncations[n], info = answer = env.step(action)
            if self._info_metrics:
                numbers[n] = numbers_of_info(
                    self._info_metrics, info, getattr(env, "place", f"environment {n}")
                )
            if answer[2] or answer[3]:
                final = np.array(
                    row
                )  # a copy: the environment may write its next observation into the same array
                infos = super()._add_info(infos, {"final_obs": final, "final_info": info}, n)
                row, info = env.reset()
            if MASK in info or LIFE_LOST in info:
                infos = self._add_info(infos, info, n)
            self._write(n, row)
        return self._observations, rewards, terminations, truncations, infos

    def _write(self, n: int, row: Any) -> None:
        """Write an environment's observation, as `np.stack` would; for few environments that takes longer."""
        if np.shape(row) != self._observations.shape[1:]:
            raise ValueError(
                f"an observation of shape {np.shape(row)} in an array {self._observations.shape}"
            )
        np.copyto(self._observations[n, ...], row, casting="same_kind")

    def _add_info(
        self, vector_infos: dict[str, Any], env_info: Mapping[str, Any], env_num: int
    ) -> dict[str, Any]:
        read = {name: value for name, value in env_info.items() if name in READ_INFOS}
        return super()._add_info(vector_infos, read, env_num)
