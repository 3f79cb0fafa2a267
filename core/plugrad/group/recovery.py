"""How a group handles learners that died or are stuck.

The learner that has applied the most changes gives its state to new learners or standbys, and to those behind it.
"""

import logging
from collections.abc import Sequence
from typing import Any, NoReturn

from plugrad.config import Config
from plugrad.errors import LearnerGroupDeadError, LearnerTimeoutError, PlugradError
from plugrad.group.worker_group import WorkerGroup
from plugrad.workers.answers import LostActor, RestartLimit

log = logging.getLogger("plugrad")


class RecoveringLearners:
    """The part of `RemoteLearners` that builds the learners, connects them, and replaces lost ones.

    Args:
        workers: without learners yet.
    """

    def __init__(self, workers: WorkerGroup) -> None:
        self._workers = workers
        self._committed = 0
        self._compiled: set[Any] = set()
        self._restarts = RestartLimit(workers.config.max_restarts)
        self._error: PlugradError | None = None
        self._is_shut_down = False
        self._open_calls = 0
        """Calls of `forward_backward` since the last step; -1: a learner was lost, and with it their gradients."""
        self._verb_runs = False

    @property
    def config(self) -> Config:
        """The learners' config; it changes with `resize` and when modules are added or removed."""
        return self._workers.config

    def _build(self) -> None:
        lost = self._workers.start(range(self.config.num_learners))
        if lost:
            raise self._workers.build_error(lost[0])
        replies, lost = self._workers.call("get_status")
        if not lost and len({reply.digest for reply in replies.values()}) > 1:
            lost = self._workers.sync_from(0)  # a module draws its own initial weights
        self._workers.digest = replies[0].digest if replies else ""
        self._recover(lost)
        self._connect()

    def _connect(self) -> None:
        while not self._workers.is_connected:
            self._check_alive()
            self._recover(self._workers.connect())
        self._check_alive()

    def _sync_from(self, source: int) -> None:
        self._recover(self._workers.sync_from(source))

    def _check_alive(self) -> None:
        if self._error is not None:
            raise self._error

    def _recover(self, lost: Sequence[LostActor]) -> None:
        """Replace lost learners, and give all learners the state of the one that has applied the most changes.

        Raises:
            LearnerGroupDeadError: none is left, `max_restarts` is used up, or `on_failure="raise"`.
            LearnerTimeoutError: the same, if learners are stuck and not dead.
        """
        while lost:
            self._remove(lost)
            replies, lost = self._workers.call("get_status")
            if not lost:
                source = min(self._workers.synced, key=lambda rank: (-replies[rank].committed, rank))
                latest = replies[source].committed, replies[source].digest
                behind = [rank for rank, each in replies.items() if (each.committed, each.digest) != latest]
                lost = self._replace(source, behind)
                self._committed = replies[source].committed
                self._workers.digest = replies[source].digest

    def _remove(self, lost: Sequence[LostActor]) -> None:
        self._compiled.clear()  # new learners have no programs; with fewer learners the shares have other sizes
        if self._open_calls or self._verb_runs:
            self._open_calls = -1
        for each in lost:
            if not self._is_shut_down:
                log.warning("%s; on_failure=%r", each, self.config.on_failure)
            self._workers.remove_worker(each)
        self._workers.abort(str(lost[0]))
        self._check_alive()
        if self.config.on_failure == "raise":
            self._fail(lost[0], "on_failure='raise'")
        if not self._workers.synced:
            self._workers.shutdown()
            self._fail(lost[0], "no other has its state: restore a checkpoint in a new group")
        if self.config.on_failure in ("restart", "standby") and not self._restarts.take(len(lost)):
            self._fail(lost[0], self._restarts.used_up)

    def _replace(self, source: int, behind: Sequence[int]) -> list[LostActor]:
        """Start learners for missing ranks, or renumber, and sync from `source`; returns actors lost meanwhile."""
        if self.config.on_failure == "shrink":
            self._workers.renumber_ranks(source)
            return self._workers.sync_from(0)
        missing = [rank for rank in range(self.config.num_learners) if rank not in self._workers.ranks]
        try:
            return self._workers.start(missing) or self._workers.sync_from(source, behind)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            self._error = LearnerGroupDeadError(f"a learner that was lost could not be replaced ({why})")
            raise

    def _fail(self, lost: LostActor, why: str) -> NoReturn:
        self._error = LearnerGroupDeadError(f"{lost}, and {why}", rank=lost.rank)
        if lost.died:
            raise self._error
        raise LearnerTimeoutError(str(self._error), rank=lost.rank, phase="call")
