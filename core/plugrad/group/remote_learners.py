"""The learners of a group as Ray actors: asked all at once, held equal, and made whole again after a fault.

The driver is the arbiter. Every change has a number; a learner that has taken it over says so in every reply, with a
digest of its state. An error of the user's code undoes the change everywhere and is raised here. A learner that died or
is stuck is replaced, the one that is furthest gives its state to all others, and the change is done again unless that
one had done it already: no update is lost, none is applied twice.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from plugrad.errors import CollectiveError, LearnerGroupDeadError, LearnerTimeoutError, PlugradError
from plugrad.group.actors import LostActor
from plugrad.group.compile_key import compile_key
from plugrad.group.messages import Replies, raise_failures
from plugrad.group.ray_start import get_ray
from plugrad.group.raylet import put
from plugrad.group.worker_group import WorkerGroup
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.learner.build import check_expected_weights, with_spaces
from plugrad.rng_streams import fresh_seed

log = logging.getLogger("plugrad")


class RemoteLearners:
    """See the module.

    Args:
        config: an `AlgorithmConfig` with spaces or an environment.

    Attributes:
        version: see `Learners`.

    Raises:
        Exception: what building a learner raised.
        LearnerTimeoutError: they were not built in `build_timeout_s`.
    """

    is_remote = True

    def __init__(self, config: Any) -> None:
        config = with_spaces(config)
        check_expected_weights(config)  # before processes are started
        if config.seed is None:  # all learners must draw alike
            config = config.debugging(seed=fresh_seed() % 2**31)
        self._workers = WorkerGroup(get_ray(f"num_learners={config.num_learners}"), config)
        self._last_number = self._committed = 0
        self.version = 0
        self._restarts_left: int = config.max_restarts
        self._compiled: set[Any] = set()
        self._dead: PlugradError | None = None
        try:
            self._build()
        except BaseException:
            self.shutdown()
            raise

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def config(self) -> Any:
        """See `Learners`."""
        return self._workers.config

    # --- what a group asks for ----------------------------------------------------------------------------------

    def update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """See `Learners`."""
        if (batch is None) == (episodes is None):
            return self.change("update", batch, episodes=episodes, **settings)  # a learner says it better
        with self._changing():
            return self._update(batch, episodes, settings)

    def _update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        key = compile_key(batch if episodes is None else episodes, settings)

        def patience() -> float:  # a learner that is restarted over this update has to compile it
            return float(self.config.timeout_s if key in self._compiled else self.config.build_timeout_s)

        given = put(self._workers.ray, batch if episodes is None else episodes)
        payload = (lambda: given) if episodes is None else (lambda: self._batch_of(given, patience()))
        results = self._all("update", payload, settings, patience, several=False)
        self._compiled.add(key)
        return results

    def change(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """See `Learners`."""
        given = put(self._workers.ray, args)
        timeout_s = self.config.build_timeout_s if method == "add_module" else self.config.timeout_s
        with self._changing():
            values = self._all(method, lambda: given, kwargs, lambda: timeout_s, several=True)
            self._workers.config = self.one("apply", _config_of)
        if method.endswith("_module"):
            self._compiled.clear()
        return values

    def each(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """See `Learners`. On learners that met a fault meanwhile the method may run again."""
        with self._changing():  # what the method does is not known
            return self._each(method, args, kwargs)

    def _each(self, method: str, args: Any, kwargs: Mapping[str, Any]) -> list[Any]:
        replies: Replies = {}
        self._check_alive()
        while missing := [rank for rank in self._workers.ranks if rank not in replies]:
            new, lost = self._run(None, method, args, kwargs, missing)
            replies |= new
            self._recover(lost)
            if lost and self.config.on_failure == "shrink":
                replies = {}  # those that are left have other ranks now
        raise_failures(replies)
        return [replies[rank].value for rank in sorted(replies)]

    def one(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See `Learners`. Also a group that has lost learners for good can be asked, while one is left."""
        while True:
            if not self._workers.synced:
                self._check_alive()
            first = self._workers.synced[0]
            replies, lost = self._run(None, method, args, kwargs, [first])
            if not lost:
                raise_failures(replies)
                return replies[first].value
            self._recover(lost)

    def shutdown(self) -> None:
        """See `Learners`."""
        self._dead = self._dead or LearnerGroupDeadError("this LearnerGroup was shut down: build a new one")
        if len(self._workers):
            self._workers.end()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """After it, who follows the weights fetches them again; also after an error, which may have come late."""
        try:
            yield
        finally:
            self.version += 1

    def _run(
        self, number: int | None, method: str, args: Any, kwargs: Mapping[str, Any], ranks: list[int]
    ) -> tuple[Replies, list[LostActor]]:
        return self._workers.ask(
            "run", number, self.config.timeout_s, method, args, kwargs, True, ranks=ranks
        )

    # --- one change on all --------------------------------------------------------------------------------------

    def _all(
        self,
        method: str,
        payload: Callable[[], Any],
        kwargs: Mapping[str, Any],
        patience: Callable[[], float],
        *,
        several: bool,
    ) -> list[Any]:
        """The answers of all learners to one change, which is done by all of them exactly once or by none."""
        self._last_number += 1
        number = self._last_number
        while True:
            self._come_together()
            given = payload()
            if not self._workers.is_connected:  # a learner was lost over that
                continue
            timeout_s = patience()
            arguments = (number, timeout_s, method, given, kwargs, several)
            replies, lost = self._workers.ask("run", *arguments, timeout_s=timeout_s)
            if not lost:
                return self._settled(number, method, replies)
            self._recover(lost)
            if self._committed == number:
                return self._completed(replies, number)

    def _settled(self, number: int, method: str, replies: Replies) -> list[Any]:
        """The answers of all, or the error of one: then the change is undone where it was done."""
        are_equal = len({reply.digest for reply in replies.values()}) == 1
        if any(reply.failure for reply in replies.values()):
            if not are_equal:
                self._make_equal(next(rank for rank, reply in replies.items() if reply.committed < number))
            raise_failures(replies)
        self._committed = number
        self._workers.digest = replies[0].digest
        if not are_equal:
            self._make_equal(0)
            if method == "update":
                raise CollectiveError(
                    "after this update the learners' states differ, and all have that of learner 0 now: an override "
                    "changes them by numbers that are not reduced over the learners"
                )
        return [replies[rank].value for rank in sorted(replies)]

    def _completed(self, replies: Replies, number: int) -> list[Any]:
        """The answers to a change that only some could give: who was restarted has the state of who did it."""
        good = {rank: reply for rank, reply in replies.items() if reply.committed == number}
        first = good[min(good)]
        return [good.get(rank, first).value for rank in self._workers.ranks]

    def _batch_of(self, episodes: Any, timeout_s: float) -> Any:
        """Reference to the batch that learner 0 makes of episodes."""
        replies, lost, batch = self._workers.ask_for_batch(episodes, timeout_s)
        self._recover(lost)
        raise_failures(replies)
        if replies and replies[0].digest != self._workers.digest:
            self._make_equal(0)  # a connector drew random numbers
        return batch

    # --- coming together, and faults ----------------------------------------------------------------------------

    def _build(self) -> None:
        lost = self._workers.start(range(self.config.num_learners))
        if lost:
            raise self._not_built(lost[0])
        replies, lost = self._workers.ask("look")
        if not lost and len({reply.digest for reply in replies.values()}) > 1:
            lost = self._workers.copy_from(0)  # a module that draws its own initial weights
        self._workers.digest = replies[0].digest if replies else ""
        self._recover(lost)
        self._come_together()

    def _not_built(self, lost: LostActor) -> PlugradError:
        if lost.died:
            return LearnerGroupDeadError(f"{lost} while it was built", rank=lost.rank)
        resources = self._workers.ray.available_resources().items()
        free = ", ".join(f"{name} {number:g}" for name, number in resources if ":" not in name)
        config = self.config
        return LearnerTimeoutError(
            f"learner {lost.rank} was not built in build_timeout_s={config.build_timeout_s:g}; "
            f"{config.num_learners} learners ask Ray for {config.num_cpus_per_learner:g} CPUs and "
            f"{config.num_gpus_per_learner:g} GPUs each; free are: {free or 'none'}",
            rank=lost.rank,
            phase="build",
        )

    def _come_together(self) -> None:
        while not self._workers.is_connected:
            self._check_alive()
            self._recover(self._workers.connect())
        self._check_alive()

    def _make_equal(self, source: int) -> None:
        self._recover(self._workers.copy_from(source))

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise self._dead

    def _recover(self, lost: Sequence[LostActor]) -> None:
        """Make the group whole again, with the state of the survivor that is furthest; nothing if none is lost.

        Raises:
            LearnerGroupDeadError: nobody survived, the budget is used up, or `on_failure="raise"`.
            LearnerTimeoutError: likewise, where learners are stuck and not dead.
        """
        while lost:
            self._part_with(lost)
            replies, lost = self._workers.ask("look")
            if not lost:
                source = min(self._workers.synced, key=lambda rank: (-replies[rank].committed, rank))
                lost = self._fill_up(source)
                self._committed = replies[source].committed
                self._workers.digest = replies[source].digest

    def _part_with(self, lost: Sequence[LostActor]) -> None:
        self._compiled.clear()  # new learners have no programs, fewer learners have shares of other sizes
        for each in lost:
            log.warning("%s; on_failure=%r", each, self.config.on_failure)
            self._workers.remove_worker(each)
        self._workers.abort(str(lost[0]))
        self._check_alive()  # a group that was shut down meanwhile stays so
        if self.config.on_failure == "raise":
            self._die(lost[0], "on_failure='raise'")
        if not self._workers.synced:
            self._workers.end()
            self._die(lost[0], "no other has its state: restore a checkpoint in a new group")
        if self.config.on_failure == "restart":
            self._restarts_left -= len(lost)
            if self._restarts_left < 0:
                self._die(lost[0], f"max_restarts={self.config.max_restarts} are used up")

    def _fill_up(self, source: int) -> list[LostActor]:
        """All places taken again, or fewer places, all with the state of `source`; returns who was lost over that."""
        if self.config.on_failure == "shrink":
            self._workers.renumber_ranks(source)
            return self._workers.copy_from(0)
        missing = [rank for rank in range(self.config.num_learners) if rank not in self._workers.ranks]
        try:
            return self._workers.start(missing) or self._workers.copy_from(source)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            self._dead = LearnerGroupDeadError(f"a learner that was lost could not be replaced ({why})")
            raise

    def _die(self, lost: LostActor, why: str) -> NoReturn:
        self._dead = LearnerGroupDeadError(f"{lost}, and {why}", rank=lost.rank)
        if lost.died:
            raise self._dead
        raise LearnerTimeoutError(str(self._dead), rank=lost.rank, phase=lost.phase)


def _config_of(learner: LearnerProtocol) -> Any:
    return learner.config
