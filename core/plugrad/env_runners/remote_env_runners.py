"""`RemoteEnvRunners`: env runners in processes of their own, with the interface of one `EnvRunner`.

They sample at the same time, each its share of the batch. New weights are sent once per version. A runner that dies or
hangs is replaced and begins new episodes; samples that it had not delivered are not counted.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from operator import index
from time import monotonic
from typing import Any

from plugrad.batch import MultiAgentBatch, join_batches
from plugrad.config import Config
from plugrad.env_runners.actor import Answer, observations_of
from plugrad.env_runners.sample_requests import SampleRequests
from plugrad.env_runners.workers import Worker, make_workers
from plugrad.errors import EnvWorkerError, PlugradError
from plugrad.policy.normalization import ObservationNormalizer, RunningMoments
from plugrad.rng_streams import stream
from plugrad.sampling.env_calls import CallsEnvs, EnvCall
from plugrad.sampling.environments import is_multi_agent
from plugrad.sampling.info_metrics import warn_of_missing
from plugrad.sampling.learner_rewards import RewardNormalizer
from plugrad.sampling.logged_metrics import LoggedMetrics
from plugrad.sampling.multi_agent.metrics import MultiAgentMetrics
from plugrad.sampling.named_envs import spec_to_send
from plugrad.sampling.sample import Sample
from plugrad.types import ModuleID
from plugrad.workers.answers import LostActor, RestartLimit, gather, gather_with_pings

log = logging.getLogger("plugrad")
_OF_MODULES = ("policies", "rl_module_spec", "agent_to_module")
"""Settings that are sent to env runners when they change."""
Weights = Callable[[], tuple[int, Mapping[str, Any]]]


class RemoteEnvRunners(CallsEnvs):
    """`config.num_env_runners` env runners in processes of this machine or in Ray actors.

    `sample` waits for all. `submit` and `collect` do not: each runner has at most
    `config.max_requests_in_flight_per_env_runner` samples under way, and goes on while the caller does something else.
    A runner whose samples nobody collects waits. A sample counts when it is collected.

    Args:
        config: with spaces, an environment and a seed.
        weights: `() -> (version, state)` of the present policy: `ActingLearner.get_weights`.
        version: `() -> version` of the present policy; a cheap call.
        normalizers: `{module_id: statistics}` of the modules that act; empty without `normalize_observations`.

    Attributes:
        normalizers: of the observations of all runners.
        reward_normalizer: those of their rewards, or None.
        logged: what listeners of all runners have logged.

    Raises:
        MissingFrameworkError: Ray is not installed.
        PlugradError: a runner was lost while it was built.
        Exception: what building a runner raised.
    """

    def __init__(
        self,
        config: Config,
        weights: Weights,
        version: Callable[[], int],
        normalizers: Mapping[ModuleID, ObservationNormalizer],
    ) -> None:
        self._config = config
        self._is_multi_agent = is_multi_agent(config)
        self.normalizers = dict(normalizers)
        scales_rewards = config.normalize_rewards and not self._is_multi_agent
        self.reward_normalizer = RewardNormalizer() if scales_rewards else None
        self._metrics = MultiAgentMetrics()
        self.logged = LoggedMetrics()
        self._begins_count = True
        self._get_weights, self._get_version = weights, version
        self._sent: tuple[int, Any] = (-1, None)
        self._series = 0
        self._restart_limit = RestartLimit(config.max_restarts)
        self._ready: deque[Answer] = deque()
        self._batches: list[MultiAgentBatch] = []
        self._restored: list[Mapping[str, Any]] = []
        self._actors: dict[int, Worker] = {}
        self._last_calls: dict[tuple[str, str], bytes] = {}
        self._workers = make_workers(config)
        self._requests = SampleRequests(self._workers.calls, config.timeout_s)
        try:
            self._start(range(config.num_env_runners))
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> Config:
        """The settings; they change with a restored run's settings of training, or when modules come and go."""
        return self._config

    @config.setter
    def config(self, config: Config) -> None:
        before, self._config = self._config, config
        changed = any(getattr(config, name) != getattr(before, name) for name in _OF_MODULES)
        if self._is_multi_agent and changed:
            self._receive_all()  # they are of the modules of before
            self._call_each(self._actors, "set_config", lambda rank: (self._pickled_config(rank),))

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """The statistics of the observations of environments with one agent, or None."""
        return next(iter(self.normalizers.values()), None)

    @property
    def _statistics(self) -> dict[str, RunningMoments]:
        named: dict[str, RunningMoments] = {
            observations_of(module_id): each for module_id, each in self.normalizers.items()
        }
        return named if self.reward_normalizer is None else {**named, "rewards": self.reward_normalizer}

    @property
    def total_steps(self) -> int:
        """See `BaseEnvRunner.total_steps`."""
        return self._metrics.episodes.total_steps

    def sample(self, num_steps_per_env: int | None = None, *, random_actions: bool = False) -> list[Any]:
        """Sample with all runners at the same time, by the present weights.

        Args:
            num_steps_per_env: steps of each environment, >= 1; None: each runner's share of a batch.
            random_actions: as in `BaseEnvRunner.sample`.

        Returns:
            The episodes of all runners in the order of their ranks; see `BaseEnvRunner.sample`.

        Raises:
            PlugradError: runners were lost, and more of them in an hour than `max_restarts`.
            Exception: what a runner raised.
        """
        arguments = self._arguments(num_steps_per_env, random_actions)
        self._metrics.begin_sample()
        answers = self._call_all("sample", *arguments)
        self._batches = [answer.batch for answer in answers if answer.batch is not None]
        return [episode for answer in answers for episode in self._count(answer).episodes]

    def take_batch(self) -> MultiAgentBatch:
        """What the learner connectors of all runners made of the last `sample`, in the order of its episodes.

        It has them with `connectors_in_env_runners`, and once.

        Returns:
            The batch that `Learner.run_connectors` makes of all these episodes.
        """
        batches, self._batches = self._batches, []
        return join_batches(batches)

    # --- samples that are not waited for -----------------------------------------------------------------------

    @property
    def num_in_flight(self) -> int:
        """Samples that were requested and not collected yet."""
        return len(self._requests) + len(self._ready) + len(self._restored)

    def submit(
        self,
        num_steps_per_env: int | None = None,
        *,
        random_actions: bool = False,
        max_in_flight: int | None = None,
    ) -> int:
        """Request samples of every runner that may have more of them under way; send the present weights to all.

        A runner acts with the newest weights that have arrived when it begins a sample.

        Args:
            num_steps_per_env: as in `sample`.
            random_actions: as in `sample`.
            max_in_flight: samples under way of each runner; None: `max_requests_in_flight_per_env_runner`.

        Returns:
            How many samples were requested.
        """
        self._take_restored()
        arguments = self._arguments(num_steps_per_env, random_actions)
        before = len(self._requests)
        ready = [answer.sample.rank for answer in self._ready]
        limit = max_in_flight or self.config.max_requests_in_flight_per_env_runner
        for rank in self._actors:
            while self._requests.of(rank) + ready.count(rank) < limit:
                self._request(rank, arguments)
        return len(self._requests) - before

    def collect(self, timeout_s: float | None = None, *, max_samples: int | None = None) -> list[Sample]:
        """Take samples that are ready, and wait for the first.

        Args:
            timeout_s: seconds to wait; None: until there is one.
            max_samples: how many to take at most; None: all.

        Returns:
            Samples in the order in which they came; none if there was none in time, or nothing was requested.

        Raises:
            PlugradError: runners were lost, and more of them in an hour than `max_restarts`.
            Exception: what a runner raised.
        """
        self._take_restored()
        if not self._ready:
            self._receive(inf if timeout_s is None else timeout_s)
        limit = inf if max_samples is None else max_samples
        while len(self._ready) < limit and self._receive(0.0):
            pass
        if self._begins_count and self._ready:
            self._metrics.begin_sample()
            self._begins_count = False
        return [self._count(self._ready.popleft()) for _ in range(int(min(limit, len(self._ready))))]

    def collect_all(self) -> list[Sample]:
        """Wait for all samples that were requested; returns them in the order of ranks."""
        self._receive_all()
        self._begins_count = True  # as each `sample` does
        return sorted(self.collect(0.0), key=lambda sample: sample.rank)

    def _arguments(self, num_steps_per_env: int | None, random_actions: bool) -> tuple[Any, ...]:
        """Arguments of `EnvRunnerActor.sample`, after newer weights were sent."""
        if self._get_version() != self._sent[0]:
            version, weights = self._get_weights()
            self._sent = version, self._workers.put(weights)
            for actor in self._actors.values():
                actor.call("set_weights", *self._sent, control=True)
        statistics = {name: each.get_state() for name, each in self._statistics.items()}
        return num_steps_per_env, random_actions, self._sent[0], statistics

    def _request(self, rank: int, arguments: tuple[Any, ...]) -> None:
        self._last_arguments = arguments
        self._requests.add(rank, self._actors[rank].call("sample", *arguments))

    def _receive(self, timeout_s: float) -> bool:
        """Wait for one answer; returns whether there was one."""
        deadline = monotonic() + timeout_s
        while found := self._requests.wait(self._actors, max(0.0, deadline - monotonic())):
            rank, answer = found[0], _lost_with_envs(*found)
            if not isinstance(answer, LostActor):
                _raise_first_error({rank: answer})
                self._ready.append(answer)
                return True
            self._replace([answer])
        return False

    def _receive_all(self) -> None:
        while len(self._requests):
            self._receive(inf)

    def _take_restored(self) -> None:
        """Make samples of a checkpoint ready, once the learners are restored, too: then their age is known."""
        version, restored = self._get_version(), self._restored
        self._ready.extendleft(Answer.from_state(each, version) for each in reversed(restored))
        self._restored = []

    def _count(self, answer: Answer) -> Sample:
        self._metrics.episodes.merge(answer.sample.num_env_steps, answer.num_episodes, answer.finished)
        self._metrics.merge_by_name(answer.returns_by_name, answer.steps_by_name)
        self.logged.merge(answer.logged)
        for name, each in self._statistics.items():
            if name in answer.statistics:  # else of a module that came since
                each.merge(**answer.statistics[name])
        return answer.sample

    # --- metrics and state --------------------------------------------------------------------------------------

    def get_metrics(self) -> dict[str, float]:
        """See `EnvRunner.get_metrics`; means are over the episodes of all runners.

        Counts are of the last `sample` or `collect_all`, or of what was collected since the last call.
        """
        self._begins_count = True
        found = self._metrics.get_metrics()
        warn_of_missing(tuple(self.config.info_metrics), found)
        return found

    def get_state(self) -> dict[str, Any]:
        """The state for `set_state`; an `EnvRunner` takes it too, and begins new episodes.

        Samples under way are waited for and are part of it; they can still be collected afterwards.
        """
        self._receive_all()
        return {
            **self._metrics.get_state(),
            **self._normalizer_states(),
            "series": self._series,
            "reward_normalizer": self.reward_normalizer.get_state() if self.reward_normalizer else None,
            "running": None,
            "runners": {str(rank): state for rank, state in enumerate(self._call_all("get_state"))},
            "ready": [each.get_state(self._get_version()) for each in self._ready] + self._restored,
        }

    def _normalizer_states(self) -> dict[str, Any]:
        """As an env runner in this process has them, with one agent or with many."""
        states = {module_id: each.get_state() for module_id, each in self.normalizers.items()}
        if self._is_multi_agent:
            return {"normalizers": states}
        return {"normalizer": next(iter(states.values()), None)}

    def _normalizer_states_in(self, state: Mapping[str, Any]) -> Mapping[ModuleID, Any]:
        if self._is_multi_agent:
            states: Mapping[ModuleID, Any] = state["normalizers"]
            return {module_id: each for module_id, each in states.items() if module_id in self.normalizers}
        found = state["normalizer"]
        return {} if found is None else dict.fromkeys(self.normalizers, found)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`; new episodes begin if it is of another number of runners."""
        self._receive_all()
        self._metrics.set_state(state)
        for module_id, each in self._normalizer_states_in(state).items():
            self.normalizers[module_id].set_state(each)
        if self.reward_normalizer is not None and state.get("reward_normalizer") is not None:
            self.reward_normalizer.set_state(state["reward_normalizer"])
        self._ready, self._restored = deque(), list(state.get("ready", []))
        self._series = max(self._series, index(state.get("series", 0)))  # older checkpoints have none
        runners = state.get("runners", {})
        if set(runners) == {str(rank) for rank in self._actors}:
            self._call_each(self._actors, "set_state", lambda rank: (runners[str(rank)],))
        else:
            self._series += 1
            self._call_each(self._actors, "begin_anew", lambda rank: (self._seed_of(rank), self._series))

    def begin_new_episodes(self) -> None:
        """See `BaseEnvRunner.begin_new_episodes`. Actions are drawn from new streams too."""
        self._receive_all()
        self._series += 1
        self._call_each(
            self._actors, "begin_anew", lambda rank: (self._seed_of(rank), self._series, self._seed_of(rank))
        )

    def call_envs(self, call: EnvCall) -> list[Any]:
        """See `CallsEnvs`. A sample under way ends first."""
        import cloudpickle

        pickled = cloudpickle.dumps(call)
        found = [result for answers in self._call_all("call_envs", pickled) for result in answers]
        if call.kind != "get_attr":
            self._last_calls.pop((call.kind, call.name), None)  # the last one of all is made last, too
            self._last_calls[call.kind, call.name] = pickled
        return found

    def make_anew(self) -> None:
        """See `CallsEnvs`."""
        self._call_all("make_anew")

    def truncate(self) -> None:
        """See `EnvRunner.truncate`."""
        self._call_all("truncate")

    def close(self) -> None:
        """End the processes; calling it again does nothing."""
        actors, self._actors = self._actors, {}
        for rank in actors:
            self._requests.remove(rank)
        self._workers.stop(actors.values())

    # --- processes ----------------------------------------------------------------------------------------------

    def _start(self, ranks: Iterable[int]) -> None:
        new = self._workers.start(ranks)
        self._actors |= new
        self._call_each(new, "build", lambda rank: (self._pickled_config(rank), self._series))
        for pickled in self._last_calls.values():
            self._call_each(new, "call_envs", dict.fromkeys(new, (pickled,)).__getitem__)
        self._send_weights(new)

    def _send_weights(self, actors: Mapping[int, Worker]) -> None:
        """Send the weights that all have to some that may not have them."""
        for actor in actors.values() if self._sent[0] >= 0 else ():
            actor.call("set_weights", *self._sent, control=True)

    def _pickled_config(self, rank: int) -> bytes:
        import cloudpickle

        config = self.config.learners(num_learners=0).debugging(seed=self._seed_of(rank))
        return cloudpickle.dumps((config, spec_to_send(config.env)))  # type: ignore[no-any-return]

    def _seed_of(self, rank: int) -> int:
        """A runner's own seed. Each series has others, so that a replacement does not repeat episodes."""
        assert self.config.seed is not None
        return int(stream(self.config.seed, "env_runner", str(self._series), str(rank)).integers(2**31))

    def _call_all(self, method: str, *args: Any) -> list[Any]:
        """The answers of all in the order of ranks; lost runners are replaced and called again."""
        found: dict[int, Any] = {}
        while len(found) < len(self._actors):
            refs = {
                rank: each.call(method, *args) for rank, each in self._actors.items() if rank not in found
            }
            # A sample has as much time as its steps need, each of which is limited.
            timeout_s = inf if method == "sample" else self.config.build_timeout_s
            new = gather_with_pings(self._workers.calls, self._actors, refs, timeout_s, self.config.timeout_s)
            new = {rank: _lost_with_envs(rank, each) for rank, each in new.items()}
            found |= {rank: each for rank, each in new.items() if not isinstance(each, LostActor)}
            if lost := [each for each in new.values() if isinstance(each, LostActor)]:
                self._replace(lost)
        _raise_first_error(found)
        return [found[rank] for rank in sorted(found)]

    def _call_each(
        self, actors: Mapping[int, Worker], method: str, arguments_of: Callable[[int], tuple[Any, ...]]
    ) -> None:
        """Call a method with arguments by rank; a lost runner is an error."""
        refs = {rank: each.call(method, *arguments_of(rank)) for rank, each in actors.items()}
        found = gather(self._workers.calls, refs, self.config.build_timeout_s)
        _raise_first_error(found)
        for each in found.values():
            if isinstance(each, LostActor):
                raise PlugradError(f"env runner {each.rank} {each.reason}", rank=each.rank)

    def _replace(self, lost: list[LostActor]) -> None:
        """Start runners anew, and repeat the requests that the lost ones had not answered."""
        self._series += 1
        numbers = {each.rank: self._requests.remove(each.rank) for each in lost}
        for each in lost:
            log.warning("env runner %d %s; it is replaced and begins new episodes", each.rank, each.reason)
            self._actors.pop(each.rank).kill()
        if not self._restart_limit.take(len(lost)):
            raise PlugradError(
                f"env runner {lost[0].rank} {lost[0].reason}, and {self._restart_limit.used_up}",
                rank=lost[0].rank,
            )
        self._start([each.rank for each in lost])
        self._actors = dict(sorted(self._actors.items()))
        for rank, number in numbers.items():
            for _ in range(number):
                self._request(rank, self._last_arguments)


def _lost_with_envs(rank: int, answer: Any) -> Any:
    """The answer; of an env runner whose environments' processes are gone a `LostActor`, so that all is made anew."""
    return (
        LostActor(rank, False, f"has lost environments: {answer}")
        if isinstance(answer, EnvWorkerError)
        else answer
    )


def _raise_first_error(found: Mapping[int, Any]) -> None:
    for rank, answer in found.items():
        if isinstance(answer, Exception):
            answer.add_note(f"in env runner {rank}")
            raise answer
