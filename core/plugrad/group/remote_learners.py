"""The learners of a group as Ray actors: asked all at once, held equal, and made whole again after a fault.

The driver is the arbiter. Every change has a number; a learner that has taken it over says so in every reply, with a
digest of its state. An error of the user's code undoes the change everywhere and is raised here. A learner that died or
is stuck is replaced, the one that is furthest gives its state to all others, and the change is done again unless that
one had done it already: no update is lost, none is applied twice. Knows Ray through `ray_start` and `processes`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from plugrad.batch import MultiAgentBatch
from plugrad.collective import SHARED_MEMORY, SOCKETS
from plugrad.collective.shared_memory import path_of
from plugrad.errors import CollectiveError, LearnerGroupDeadError, LearnerTimeoutError, PlugradError
from plugrad.group.learner_actor import LearnerActor
from plugrad.group.processes import Lost, Process, answers, end_all, start
from plugrad.group.ray_start import ray_for
from plugrad.group.replies import Reply, failure_of
from plugrad.learner.build import with_spaces
from plugrad.streams import fresh_seed

Replies = dict[int, Reply]
log = logging.getLogger("plugrad")

GRACE_S = 1.0
"""So much longer than the learners wait for each other the driver waits for them: they know who is missing."""
SHUTDOWN_S = 3.0


class RemoteLearners:
    """See the module.

    Args:
        config: an `AlgorithmConfig` with spaces or an environment.
    """

    is_remote = True

    def __init__(self, config: Any) -> None:
        config = with_spaces(config)
        if config.seed is None:  # all learners must draw alike
            config = config.debugging(seed=fresh_seed() % 2**31)
        self.config = config
        self._ray = ray_for(
            config.num_learners * config.num_cpus_per_learner, f"num_learners={config.num_learners}"
        )
        self._processes: dict[int, Process] = {}
        self._committed = 0
        self._digest = ""
        self._is_connected = False
        self._restarts_left: int = config.max_restarts
        self._compiled: set[Any] = set()
        self._dead: PlugradError | None = None
        try:
            self._build()
        except BaseException:
            self.shutdown()
            raise

    def __len__(self) -> int:
        return len(self._processes)

    # --- what a group asks for ----------------------------------------------------------------------------------

    def update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """See `Learners`."""
        if (batch is None) == (episodes is None):
            return self.change("update", batch, episodes=episodes, **settings)
        key = _signature(batch if episodes is None else episodes, settings)
        timeout_s = self.config.timeout_s if key in self._compiled else self.config.build_timeout_s
        given = self._ray.put(batch if episodes is None else episodes)
        payload = (lambda: given) if episodes is None else (lambda: self._connect_episodes(given, timeout_s))
        results = self._all("update", payload, dict(settings), timeout_s)
        self._compiled.add(key)
        return results

    def change(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """See `Learners`."""
        given = self._ray.put(args)
        values = self._all(method, lambda: given, kwargs, self.config.build_timeout_s, several=True)
        self.config = self.one("apply", _config_of)
        return values

    def each(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """See `Learners`. On a learner that was restarted meanwhile the method may run again."""
        replies: Replies = {}
        while set(replies) != set(self._processes):
            self._check_alive()
            missing = [rank for rank in self._processes if rank not in replies]
            call = (None, self.config.timeout_s, method, args, kwargs, True)
            new, lost = self._ask("run", *call, ranks=missing)
            replies |= new
            if lost:
                self._recover(lost)
        self._raise_failure(replies)
        return [replies[rank].value for rank in sorted(replies)]

    def one(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See `Learners`."""
        while True:
            rank = self._first()
            call = (None, self.config.timeout_s, method, args, kwargs, True)
            replies, lost = self._ask("run", *call, ranks=[rank])
            if not lost:
                self._raise_failure(replies)
                return replies[rank].value
            self._recover(lost)

    def shutdown(self) -> None:
        """See `Learners`."""
        if not self._processes:
            return
        self._abort("the group is shut down")
        self._dead = self._dead or LearnerGroupDeadError("this LearnerGroup was shut down: build a new one")
        try:
            self._ask("run", None, SHUTDOWN_S, "shutdown", (), {}, True, timeout_s=SHUTDOWN_S)
        finally:
            end_all(self._processes.values(), SHUTDOWN_S)
            self._processes = {}

    # --- one change on all --------------------------------------------------------------------------------------

    def _all(
        self,
        method: str,
        payload: Callable[[], Any],
        kwargs: Mapping[str, Any],
        timeout_s: float,
        several: bool = False,
    ) -> list[Any]:
        number = self._committed + 1
        while True:
            self._check_alive()
            if not self._is_connected:
                self._connect()
                continue
            given = payload()
            if given is None:  # a learner was lost meanwhile
                continue
            replies, lost = self._ask(
                "run", number, timeout_s, method, given, kwargs, several, timeout_s=timeout_s
            )
            if not lost:
                return self._settled(number, method, replies)
            self._recover(lost)
            if self._committed >= number:
                return self._completed(replies, number)

    def _settled(self, number: int, method: str, replies: Replies) -> list[Any]:
        """The answers of all, or the error of one: then the change is undone where it was done."""
        digests = {reply.digest for reply in replies.values()}
        if any(reply.failure for reply in replies.values()):
            self._is_connected = False
            if len(digests) > 1:
                before = [rank for rank, reply in replies.items() if reply.committed < number]
                self._make_equal(before[0])
            self._committed = max(self._committed, *(reply.committed for reply in replies.values()))
            self._raise_failure(replies)
        self._committed = number
        if len(digests) > 1:
            self._make_equal(0)
            if method == "update":
                raise CollectiveError(
                    "after this update the learners' states differ, and all have that of learner 0 now: an override "
                    "changes them by numbers that are not reduced over the learners"
                )
        return [replies[rank].value for rank in sorted(replies)]

    def _completed(self, replies: Replies, number: int) -> list[Any]:
        """The answers to a change that only some could answer: who was restarted has the state of who did it."""
        good = {rank: reply for rank, reply in replies.items() if reply.committed == number}
        first = next(iter(good.values()), None)
        if first is None:
            raise LearnerGroupDeadError(
                f"change {number} was applied and its answers were lost with a learner"
            )
        return [good.get(rank, first).value for rank in sorted(self._processes)]

    def _connect_episodes(self, episodes: Any, timeout_s: float) -> Any:
        """Reference to the batch that learner 0 makes of episodes; None if it was lost over that."""
        reply, batch = self._processes[0].call("prepare", episodes, num_returns=2)
        replies, lost = self._sorted(answers(self._ray, {0: reply}, timeout_s))
        if lost:
            self._recover(lost)
            return None
        self._raise_failure(replies)
        if replies[0].digest != self._digest and len(self) > 1:
            self._make_equal(0)  # a connector drew random numbers
        return batch

    def _raise_failure(self, replies: Replies) -> None:
        failures = {rank: reply.failure for rank, reply in replies.items() if reply.failure is not None}
        if not failures:
            self._digest = next(iter(replies.values())).digest
            return
        self._is_connected = False
        own = [failure for failure in failures.values() if not failure.is_echo]
        late = [
            failure
            for failure in failures.values()
            if failure.summary.startswith(LearnerTimeoutError.__name__)
        ]
        raise (own or late or list(failures.values()))[0].error()

    # --- asking -------------------------------------------------------------------------------------------------

    def _ask(
        self, method: str, *args: Any, ranks: Iterable[int] | None = None, timeout_s: float | None = None
    ) -> tuple[Replies, list[Lost]]:
        timeout_s = (self.config.timeout_s if timeout_s is None else timeout_s) + GRACE_S
        asked = self._processes if ranks is None else list(ranks)
        refs = {rank: self._processes[rank].call(method, *args) for rank in asked}
        return self._sorted(answers(self._ray, refs, timeout_s, self._abort_others))

    def _sorted(self, found: Mapping[int, Any]) -> tuple[Replies, list[Lost]]:
        replies: Replies = {}
        for rank, answer in found.items():
            if isinstance(answer, Exception):  # Ray could not even call it
                answer = Reply(
                    rank, self._committed, self._digest, None, failure_of(answer, rank, self._committed + 1)
                )
            if isinstance(answer, Reply):
                replies[rank] = answer
        return replies, [answer for answer in found.values() if isinstance(answer, Lost)]

    def _abort_others(self, lost: Lost) -> None:
        self._abort(f"learner {lost.rank} {lost.said}", without=lost.rank)

    def _abort(self, reason: str, without: int | None = None) -> None:
        """Let learners stop waiting for each other; not waited for."""
        self._is_connected = False
        for rank, process in self._processes.items():
            if rank != without:
                process.call("abort", reason, control=True)

    def _first(self) -> int:
        if not self._processes:
            self._check_alive()
        return min(self._processes)

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise self._dead

    # --- coming together ----------------------------------------------------------------------------------------

    def _build(self) -> None:
        lost = self._start(range(self.config.num_learners))
        if lost:
            raise self._not_built(lost[0])
        if len(set(self._digests())) > 1:  # a module that draws its own initial weights
            self._make_equal(0)
        self._connect()
        self._digest = self._digests()[0]

    def _start(self, ranks: Iterable[int]) -> list[Lost]:
        """New learners in these places; returns those that did not come up.

        Raises:
            Exception: what building raised.
        """
        import cloudpickle

        config, ranks = self.config, list(ranks)
        options = {
            "num_cpus": config.num_cpus_per_learner,
            "num_gpus": config.num_gpus_per_learner,
            "resources": config.custom_resources_per_learner or None,
        }
        threads = max(1, int(config.num_cpus_per_learner))
        new = dict(zip(ranks, start(self._ray, LearnerActor, [threads], options, len(ranks)), strict=True))
        self._processes = dict(sorted({**self._processes, **new}.items()))
        places = answers(self._ray, {rank: new[rank].find() for rank in ranks}, config.build_timeout_s)
        lost = [place for place in places.values() if isinstance(place, Lost)]
        if lost:
            return lost
        for rank, place in places.items():
            new[rank].place = place
        pickled = cloudpickle.dumps(config)
        refs = {rank: new[rank].call("build", pickled, rank) for rank in ranks}
        replies, lost = self._sorted(answers(self._ray, refs, config.build_timeout_s))
        if not lost:
            self._raise_failure(replies)
        self._compiled.clear()
        return lost

    def _not_built(self, lost: Lost) -> PlugradError:
        if lost.died:
            return LearnerGroupDeadError(
                f"learner {lost.rank} died while it was built: {lost.said}", rank=lost.rank
            )
        free = ", ".join(
            f"{name} {number:g}"
            for name, number in self._ray.available_resources().items()
            if ":" not in name
        )
        return LearnerTimeoutError(
            f"learner {lost.rank} was not built in build_timeout_s={self.config.build_timeout_s:g}; "
            f"{self.config.num_learners} learners ask Ray for {self.config.num_cpus_per_learner:g} CPUs and "
            f"{self.config.num_gpus_per_learner:g} GPUs each, and free are: {free}",
            rank=lost.rank,
            phase="build",
        )

    def _connect(self) -> None:
        """Let the learners meet in a new collective; recovers if some are lost over that."""
        name = token_hex(8)
        try:
            lost = self._meet(name)
        finally:
            Path(path_of(name)).unlink(missing_ok=True)
        if lost:
            self._recover(lost)

    def _meet(self, name: str) -> list[Lost]:
        address = None
        if len(self) > 1:
            near = len({process.node for process in self._processes.values()}) == 1
            replies, lost = self._ask("host", SHARED_MEMORY if near else SOCKETS, len(self), name, ranks=[0])
            if lost:
                return lost
            self._raise_failure(replies)
            address = replies[0].value
        refs = {
            rank: process.call("join", address, rank, self.config.timeout_s)
            for rank, process in self._processes.items()
        }
        replies, lost = self._sorted(
            answers(self._ray, refs, self.config.timeout_s + GRACE_S, self._abort_others)
        )
        if not lost:
            self._raise_failure(replies)
            self._is_connected = True
        return lost

    def _digests(self) -> list[str]:
        replies, lost = self._ask("look")
        if lost:
            raise self._not_built(lost[0])
        return [replies[rank].digest for rank in sorted(replies)]

    def _make_equal(self, source: int) -> None:
        lost = self._copy_from(source)
        if lost:
            self._recover(lost)

    def _copy_from(self, source: int) -> list[Lost]:
        """Give the state of one learner to all others; returns those that were lost over that."""
        given = self._processes[source].call("give")
        timeout_s = self.config.build_timeout_s
        found = answers(self._ray, {source: given}, timeout_s)[source]
        if isinstance(found, Lost):
            return [found]
        if isinstance(found, Exception):
            raise found
        refs = {
            rank: process.call("adopt", given) for rank, process in self._processes.items() if rank != source
        }
        replies, lost = self._sorted(answers(self._ray, refs, timeout_s))
        if replies and not lost:
            self._raise_failure(replies)
        return lost

    # --- faults -------------------------------------------------------------------------------------------------

    def _recover(self, lost: list[Lost]) -> None:
        """Make the group whole again, with the state of the survivor that is furthest.

        Raises:
            LearnerGroupDeadError: nobody survived, the budget is used up, or `on_failure="raise"`.
            LearnerTimeoutError: likewise, where learners are stuck and not dead.
        """
        while lost:
            missing = self._bury(lost)
            self._abort(f"learner {lost[0].rank} {lost[0].said}")
            looks, lost = self._ask("look")
            if lost:
                continue
            source = min(looks, key=lambda rank: (-looks[rank].committed, rank))
            if self.config.on_failure == "shrink":
                others = [rank for rank in self._processes if rank != source]
                self._processes = {n: self._processes[rank] for n, rank in enumerate([source, *others])}
                source = 0
            else:
                lost = self._start(
                    rank for rank in range(len(self) + len(missing)) if rank not in self._processes
                )
            lost = lost or self._copy_from(source)
            if not lost:
                furthest = max(looks.values(), key=lambda look: look.committed)
                self._committed, self._digest = furthest.committed, furthest.digest

    def _bury(self, lost: list[Lost]) -> list[int]:
        """Take the lost out of the group; returns their ranks."""
        for each in lost:
            log.warning("learner %d %s", each.rank, each.said)
            self._processes.pop(each.rank).kill()
        first = lost[0]
        if self.config.on_failure == "raise":
            self._die(first, "on_failure='raise'")
        if not self._processes:
            self._die(
                first, "no learner is left that has its state: restore from a checkpoint in a new group"
            )
        if self.config.on_failure == "restart":
            self._restarts_left -= len(lost)
            if self._restarts_left < 0:
                self._die(first, f"max_restarts={self.config.max_restarts} are used up")
        return [each.rank for each in lost]

    def _die(self, lost: Lost, why: str) -> None:
        self._abort(why)
        self._dead = LearnerGroupDeadError(f"learner {lost.rank} {lost.said}, and {why}", rank=lost.rank)
        if lost.died:
            raise self._dead
        raise LearnerTimeoutError(str(self._dead), rank=lost.rank, phase="call")


def _config_of(learner: Any) -> Any:
    return learner.config


def _signature(given: Any, settings: Mapping[str, Any]) -> Any:
    """What a compiled program may depend on: an update like an earlier one compiles nothing."""
    sizes = tuple(sorted((name, value) for name, value in settings.items() if isinstance(value, int)))
    modules = given.policy_batches if isinstance(given, MultiAgentBatch) else given
    if not isinstance(modules, Mapping):
        return "episodes", sizes
    return sizes, tuple(_columns(name, each) for name, each in modules.items())


def _columns(name: str, given: Any) -> Any:
    if isinstance(given, Mapping):
        return name, tuple(_columns(column, values) for column, values in given.items())
    shape = np.shape(given)
    return name, shape[1:], shape[:1] and int(shape[0] - 1).bit_length()
