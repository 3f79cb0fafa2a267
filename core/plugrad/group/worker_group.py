"""The processes of a group's learners, by rank: started, asked all at once, brought together, made equal, ended.

What to do about one that is lost is decided in `remote_learners`; here it is only told. Knows Ray through `processes`.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

from plugrad.collective import SHARED_MEMORY, SOCKETS
from plugrad.collective.shared_memory import shared_file_path
from plugrad.errors import LearnerGroupDeadError
from plugrad.group.actors import Actor, LostActor, gather, gather_with_pings, kill_all, start_actors
from plugrad.group.learner_actor import LearnerActor
from plugrad.group.messages import Replies, Reply, failure_of, raise_failures
from plugrad.group.ray_start import num_cpus_to_reserve

GRACE_S = 1.0
"""So much longer than the learners wait for each other the driver waits for them: they know who is missing."""
SHUTDOWN_S = 3.0


class WorkerGroup:
    """See the module.

    Args:
        ray: the module.
        config: what the learners are built from; follows modules that come and go.

    Attributes:
        is_connected: whether all are in one collective, in which nothing has failed yet.
        digest: of the state that all had when they were last equal.
    """

    def __init__(self, ray: Any, config: Any) -> None:
        self.ray = ray
        self.config = config
        self.is_connected = False
        self.digest = ""
        self._actors: dict[int, Actor] = {}
        self._blank: set[int] = set()

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def ranks(self) -> list[int]:
        """Of those that are there, ascending."""
        return sorted(self._actors)

    @property
    def synced(self) -> list[int]:
        """Ranks of those that have the group's state: all but those that were started and have not adopted it."""
        return [rank for rank in self.ranks if rank not in self._blank]

    def ask(
        self, method: str, *args: Any, ranks: Iterable[int] | None = None, timeout_s: float | None = None
    ) -> tuple[Replies, list[LostActor]]:
        """Call a method of `LearnerActor` on all, or on some; the replies, and who gave none.

        When one is found dead the others are told not to wait for it.
        """
        refs = {
            rank: self._actors[rank].call(method, *args) for rank in (self.ranks if ranks is None else ranks)
        }
        return self._read(self._wait(refs, timeout_s or self.config.timeout_s))

    def ask_for_batch(self, episodes: Any, timeout_s: float) -> tuple[Replies, list[LostActor], Any]:
        """Let learner 0 run the connectors: its reply, itself if it is lost, and the reference to the batch."""
        reply, batch = self._actors[0].call("prepare", episodes, num_returns=2)
        return *self._read(self._wait({0: reply}, timeout_s)), batch

    def _wait(self, refs: Mapping[int, Any], timeout_s: float) -> dict[int, Any]:
        usual_s = self.config.timeout_s + GRACE_S
        return gather_with_pings(
            self.ray, self._actors, refs, timeout_s + GRACE_S, usual_s, self._tell_others
        )

    def _read(self, found: Mapping[int, Any]) -> tuple[Replies, list[LostActor]]:
        replies: Replies = {}
        for rank, answer in found.items():
            if isinstance(answer, Exception):  # Ray could not even call it
                self.is_connected = False
                replies[rank] = Reply(rank, -1, self.digest, None, failure_of(answer, rank, None))
            elif isinstance(answer, Reply):
                self.is_connected = self.is_connected and answer.failure is None
                replies[rank] = answer
        return replies, [answer for answer in found.values() if isinstance(answer, LostActor)]

    def _tell_others(self, lost: LostActor) -> None:
        self.abort(str(lost), without=lost.rank)

    def abort(self, reason: str, without: int | None = None) -> None:
        """Let the learners stop waiting for each other; not waited for."""
        self.is_connected = False
        for rank, process in self._actors.items():
            if rank != without:
                process.call("abort", reason, control=True)

    # --- who they are -------------------------------------------------------------------------------------------

    def start(self, ranks: Iterable[int]) -> list[LostActor]:
        """New learners in these places; returns those that did not come up.

        The first of all have the state that the group begins with, later ones none.

        Raises:
            Exception: what building raised.
        """
        import cloudpickle

        config, ranks = self.config, list(ranks)
        options = {
            "num_cpus": num_cpus_to_reserve(self.ray, config.num_cpus_per_learner),
            "num_gpus": config.num_gpus_per_learner,
            "resources": config.custom_resources_per_learner or None,
        }
        threads = max(1, int(config.num_cpus_per_learner))
        made = start_actors(self.ray, LearnerActor, [(rank, threads, sys.path) for rank in ranks], options)
        new = dict(zip(ranks, made, strict=True))
        self._blank |= set(ranks if self._actors else ())
        self._actors |= new
        places = gather(self.ray, {rank: new[rank].locate() for rank in ranks}, config.build_timeout_s)
        lost = [place for place in places.values() if isinstance(place, LostActor)]
        there = [rank for rank in ranks if not isinstance(places[rank], LostActor)]
        for rank in there:
            new[rank].location = places[rank]
        refs = {rank: new[rank].call("build", cloudpickle.dumps(config)) for rank in there}
        # without signs of life: while a framework is imported no other thread may speak
        replies, others = self._read(gather(self.ray, refs, config.build_timeout_s))
        raise_failures(replies)
        return lost + others

    def remove_worker(self, lost: LostActor) -> None:
        """Take one out of the group, and make sure that it has ended."""
        self._blank.discard(lost.rank)
        if process := self._actors.pop(lost.rank, None):  # none is left in a group that is being shut down
            process.kill()
        self.is_connected = False

    def renumber_ranks(self, first: int) -> None:
        """Number those that are left anew, from 0; `first` is the first."""
        order = [first, *(rank for rank in self.ranks if rank != first)]
        self._actors = {rank: self._actors[former] for rank, former in enumerate(order)}

    def end(self) -> None:
        """Shut all learners down and end their processes, whatever state they are in."""
        try:
            self.abort("the group is shut down")
            self.ask("run", None, SHUTDOWN_S, "shutdown", (), {}, True, timeout_s=SHUTDOWN_S)
        except LearnerGroupDeadError:
            pass  # Ray itself is gone: there is nobody to ask
        finally:
            processes, self._actors = self._actors, {}
            kill_all(processes.values(), SHUTDOWN_S)

    # --- what they have in common -------------------------------------------------------------------------------

    def connect(self) -> list[LostActor]:
        """Let the learners meet in a new collective; returns those that were lost over that.

        Raises:
            Exception: they could not meet, and all are there.
        """
        name = token_hex(8)
        try:
            return self._meet(name)
        finally:
            Path(shared_file_path(name)).unlink(missing_ok=True)  # who made it may have died over it

    def _meet(self, name: str) -> list[LostActor]:
        address = None
        if len(self) > 1:
            is_one_node = len({process.node for process in self._actors.values()}) == 1
            kind = SHARED_MEMORY if is_one_node else SOCKETS
            replies, lost = self.ask("host", kind, len(self), name, ranks=[0])
            if lost:
                return lost
            raise_failures(replies)
            address = replies[0].value
        refs = {
            rank: process.call("join", address, rank, self.config.timeout_s)
            for rank, process in self._actors.items()
        }
        self.is_connected = True
        replies, lost = self._read(self._wait(refs, self.config.timeout_s))
        if not lost:
            raise_failures(replies)
        return lost

    def copy_from(self, source: int) -> list[LostActor]:
        """Give the state of one learner to all others; returns those that were lost over that."""
        given = self._actors[source].call("give")
        timeout_s = self.config.build_timeout_s
        found = self._wait({source: given}, timeout_s)[source]
        if isinstance(found, LostActor):
            return [found]
        if isinstance(found, Exception):
            raise found
        others = [rank for rank in self.ranks if rank != source]
        replies, lost = self.ask("adopt", given, ranks=others, timeout_s=timeout_s)
        if not lost:
            raise_failures(replies)
            self._blank = set()
        return lost
