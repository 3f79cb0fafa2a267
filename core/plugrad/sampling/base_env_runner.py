"""`BaseEnvRunner`: what env runners of environments with one agent and with many share."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from plugrad.config import Config
from plugrad.episodes import Episode
from plugrad.errors import ConfigError
from plugrad.rng_streams import fresh_seed, stream
from plugrad.sampling.env_calls import CallsEnvs, EnvCall
from plugrad.sampling.env_clock import EnvClock
from plugrad.sampling.episode_metrics import WINDOW, EpisodeMetrics
from plugrad.sampling.logged_metrics import LoggedMetrics
from plugrad.sampling.vectorization import steps_per_env
from plugrad.sampling.watched_episodes import EpisodeNotifier

EpisodeT = TypeVar("EpisodeT", bound=Episode)


class BaseEnvRunner(CallsEnvs, Generic[EpisodeT]):
    """Samples episodes; it counts them, and knows how others begin.

    Attributes:
        in_evaluation: whether it plays for `Algorithm.evaluate`.
        rank: its rank among env runners in processes of their own; None: it is in the Algorithm's.
    """

    config: Config
    in_evaluation = False
    rank: int | None = None
    _counted: EpisodeMetrics
    _notifier: EpisodeNotifier | None = None
    _num_restarts = 0
    _last_calls: Mapping[tuple[str, str], EnvCall] = {}

    @property
    def total_steps(self) -> int:
        """Environment steps sampled so far, including those before a restored state."""
        return self._counted.total_steps

    @property
    def num_episodes_begun(self) -> int:
        """Episodes begun so far. The `id_` of an episode is its number, from 1, in the order of beginning."""
        return self._counted.num_episodes_begun

    @property
    def fragment_length(self) -> int:
        """Steps per environment in one `sample()`: see `steps_per_env`."""
        return steps_per_env(self.config)

    @property
    def finished_episodes(self) -> list[tuple[float, int]]:
        """`(return, length)` of the last episodes that finished in the last `sample()`, oldest first, at most 20."""
        return self._counted.finished_in_last_sample

    @cached_property
    def logged(self) -> LoggedMetrics:
        """What listeners have logged by `log_metric`."""
        return LoggedMetrics()

    def log_metric(self, name: str, value: Any, reduce: str = "mean", window: int = WINDOW) -> None:
        """Log a metric about episodes, for results: `env_runners/<name>`, or `evaluation/<name>` in evaluations.

        Args:
            name: of the metric; parts may be separated by "/".
            value: one number; with `reduce="all"` anything.
            reduce: "mean", "min", "max" or "last" of the last values; "sum" or "all" of those since the last results:
                "all" is their list. In an evaluation each is of the values of this evaluation.
            window: how many of the last values count.

        Raises:
            ConfigError: there is no such reduction, the metric has another one, or the value is no number.
        """
        self.logged.log(name, value, reduce, window)

    @cached_property
    def clock(self) -> EnvClock:
        """Tells since when the environments are called."""
        return EnvClock()

    @property
    @abstractmethod
    def envs(self) -> Sequence[Any]:
        """The environments with their wrappers, where they are objects of this process; else none."""

    def notify_of_episodes(self, notifier: EpisodeNotifier) -> None:
        """Let listeners hear of the episodes.

        Args:
            notifier: tells them.

        Raises:
            ConfigError: they would hear of steps, and the environments are no objects of this process.
        """
        self._notifier = notifier
        if notifier.sees_steps:
            self._notify_of_steps(notifier)

    def tell_until(self, number: int) -> None:
        """Let listeners hear of no episode after one.

        Args:
            number: its id.
        """
        if self._notifier is not None:
            self._notifier.last = number

    def reset(self, seed: int | None = None) -> None:
        """Drop running episodes: the next `sample()` begins new ones in all environments.

        Statistics of observations and counters stay.

        Args:
            seed: for the environments; None: from the system.
        """
        self._seed = seed
        self._schedule_reset(() if seed is None else (seed,))

    def begin_new_episodes(self) -> None:
        """Drop running episodes: the next `sample()` begins others in all environments, with seeds not used before.

        Statistics of observations and counters stay.
        """
        self._num_restarts += 1
        self._restart_all()

    def sample(self, num_steps_per_env: int | None = None, *, random_actions: bool = False) -> list[EpisodeT]:
        """Step every environment a number of times.

        Args:
            num_steps_per_env: steps of each environment, >= 1; None: `fragment_length`.
            random_actions: draw actions from the action spaces, not from the policies. The episodes then have no other
                columns of the policies than their recurrent states. With many agents, a random action whose outcome
                comes in a later sample of the policies is left out there if they give more columns.

        Returns:
            Whole episodes and chunks: first those that ended, in the order of ending, then those that are still
            running. Chunks of one episode share their `id_`. With `vectorization_mode="vector_entry_point"` a step
            that only resets an environment is part of no episode, so that there are fewer steps.

        Raises:
            ConfigError: fewer than 1 step.
            EnvContractError: see the class. The next `sample()` begins new episodes, with other seeds, as after any
                other error.
        """
        num_steps = self.fragment_length if num_steps_per_env is None else num_steps_per_env
        if num_steps < 1:
            raise ConfigError(f"a fragment has at least 1 step per environment, asked for {num_steps}")
        try:
            if self._notifier is None:
                return self._sample(num_steps, random_actions)
            self._notifier.num_begun = self.num_episodes_begun
            episodes = self._sample(num_steps, random_actions)
            self._notifier.sampled(episodes)
            return episodes
        except BaseException:
            self.begin_new_episodes()  # those that ran would lead to the same error
            raise

    def call_envs(self, call: EnvCall) -> list[Any]:
        """See `CallsEnvs`."""
        found = self._call_envs(call)
        if call.kind != "get_attr":
            name = call.kind, call.name
            others = {each: known for each, known in self._last_calls.items() if each != name}
            self._last_calls = {**others, name: call}  # the last one of all is made last, too
        return found

    def make_anew(self) -> None:
        """See `CallsEnvs`."""
        self._make_envs_anew()
        if self._notifier is not None:
            self.notify_of_episodes(self._notifier)
        for call in self._last_calls.values():
            self._call_envs(call)
        self.begin_new_episodes()

    @abstractmethod
    def _notify_of_steps(self, notifier: EpisodeNotifier) -> None: ...

    @abstractmethod
    def _call_envs(self, call: EnvCall) -> list[Any]: ...

    @abstractmethod
    def _make_envs_anew(self) -> None: ...

    @abstractmethod
    def _sample(self, num_steps: int, random_actions: bool) -> list[EpisodeT]: ...

    @abstractmethod
    def _schedule_reset(self, entropy: tuple[int, ...]) -> None:
        """Drop the running episodes; whole numbers that seed the next ones, none: from the system."""

    def _random_actions_stream(self) -> np.random.Generator:
        """Of the next random actions: the steps so far name it, so that it needs no place in the state."""
        seed = fresh_seed() if self._seed is None else self._seed
        return stream(seed, "random_actions", str(self.total_steps))

    def _restart_all(self) -> None:
        """Begin others, seeded by the seed, the steps so far, and how often running episodes were dropped."""
        entropy: tuple[int, ...] = ()
        if self._seed is not None:
            entropy = (self._seed, self.total_steps, *([self._num_restarts] if self._num_restarts else []))
        self._schedule_reset(entropy)
