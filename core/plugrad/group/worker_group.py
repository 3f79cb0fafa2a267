"""`WorkerGroup`: the actors of a group's learners by rank: calling, connecting, syncing and replacing them.

It reports lost actors; `remote_learners` decides what to do about them.
"""

import logging
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from secrets import token_hex
from typing import Any

from plugrad.collective import Membership, Place
from plugrad.config import Config
from plugrad.errors import LearnerGroupDeadError, LearnerTimeoutError, PlugradError
from plugrad.group.learner_actor import LearnerActor
from plugrad.group.messages import Replies, Reply, make_failure, raise_failures
from plugrad.group.standbys import Standbys
from plugrad.hooks.registry import choose_collective, load_collective
from plugrad.workers.actors import Actor, RayCalls, kill_all
from plugrad.workers.answers import LostActor, RestartLimit, gather, gather_with_pings
from plugrad.workers.placement import Placement
from plugrad.workers.ray_cluster import num_cpus_to_reserve

GRACE_S = 1.0
"""How much longer the driver waits than the learners wait for each other: they know which one is missing."""
SHUTDOWN_S = 3.0
log = logging.getLogger("plugrad")


class WorkerGroup:
    """Actors of class `LearnerActor` by rank.

    Args:
        ray: the module `ray`.
        config: the learners' config; replaced when modules are added or removed.

    Attributes:
        is_connected: whether all are in one collective that has not failed.
        collective: name of the current collective; None if there is none, and for a single learner.
        digest: digest of the state when all were last equal.
        standbys: learners that can replace one of these.
    """

    def __init__(self, ray: Any, config: Config, plugins: Sequence[Any] = ()) -> None:
        self.ray = ray
        self.config = config
        self._plugins = tuple(plugins)
        self.is_connected = False
        self.collective: str | None = None
        self.digest = ""
        self._epoch = 0
        self._joined: tuple[str | None, str] = (None, "")  # the current collective: its name and its key
        self._calls = RayCalls(ray)
        self._actors: dict[int, Actor] = {}
        self._placement = Placement(
            ray,
            config.placement,
            {
                "num_cpus": num_cpus_to_reserve(ray, config.num_cpus_per_learner),
                "num_gpus": config.num_gpus_per_learner,
                "resources": config.custom_resources_per_learner or None,
            },
            what=f"placement={config.placement!r} of learners",
            smaller="learners(num_learners=...) with fewer, or num_cpus_per_learner, num_gpus_per_learner or "
            "custom_resources_per_learner with less",
            timeout_s=config.timeout_s,
        )
        self.standbys = Standbys(
            self._calls, config.num_standby_learners, self._start_actor, RestartLimit(config.max_restarts)
        )
        self._unsynced: set[int] = set()

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def ranks(self) -> list[int]:
        """The ranks, ascending."""
        return sorted(self._actors)

    @property
    def synced(self) -> list[int]:
        """The ranks of learners that have the group's state: all but new ones before `sync_from`."""
        return [rank for rank in self.ranks if rank not in self._unsynced]

    # --- calls --------------------------------------------------------------------------------------------------

    def call(
        self, method: str, *args: Any, ranks: Iterable[int] | None = None, timeout_s: float | None = None
    ) -> tuple[Replies, list[LostActor]]:
        """Call a method of `LearnerActor`. When an actor is found dead, the others are told not to wait for it.

        Args:
            method: its name.
            *args: its arguments.
            ranks: which actors; None: all.
            timeout_s: seconds to wait; None: `config.timeout_s`.

        Returns:
            `(replies, lost)`: the replies by rank, and the actors that gave none.

        Raises:
            LearnerGroupDeadError: Ray itself is gone.
        """
        ranks = self.ranks if ranks is None else ranks
        refs = {rank: self._actors[rank].call(method, *args) for rank in ranks}
        return self._split(self._gather(refs, timeout_s or self.config.timeout_s))

    def call_learners(
        self,
        method: str,
        args: Any,
        kwargs: Mapping[str, Any],
        *,
        number: int | None = None,
        ranks: Iterable[int] | None = None,
        timeout_s: float | None = None,
    ) -> tuple[Replies, list[LostActor]]:
        """Call a method of `Learner`.

        Args:
            method: its name.
            args: a tuple of positional arguments, or Ray's reference to it.
            kwargs: named arguments.
            number: number of the change, if it is one.
            ranks: which learners; None: all.
            timeout_s: seconds that learners wait for each other; None: `config.timeout_s`.

        Returns:
            See `call`.

        Raises:
            LearnerGroupDeadError: Ray itself is gone.
        """
        timeout_s = timeout_s or self.config.timeout_s
        return self.call("call", number, timeout_s, method, args, kwargs, ranks=ranks, timeout_s=timeout_s)

    def run_connectors(self, args: Any, timeout_s: float) -> tuple[Replies, list[LostActor], Any]:
        """Run the learner connectors on learner 0.

        Args:
            args: Ray's reference to `(episodes,)`.
            timeout_s: seconds to wait.

        Returns:
            `(replies, lost, reference to (batch,))`.
        """
        reply, batch = self._actors[0].call("run_connectors", args, num_returns=2)
        return *self._split(self._gather({0: reply}, timeout_s)), batch

    def abort(self, reason: str, without: int | None = None) -> None:
        """Make the learners stop waiting for each other; does not wait.

        Args:
            reason: the reason of their error.
            without: a rank to leave out.
        """
        self.is_connected = False
        for rank, actor in self._actors.items():
            if rank != without:
                actor.call("abort", reason, self._epoch, control=True)

    def _gather(self, refs: Mapping[int, Any], timeout_s: float) -> dict[int, Any]:
        ping_timeout_s = self.config.timeout_s + GRACE_S
        return gather_with_pings(
            self._calls,
            self._actors,
            refs,
            timeout_s + GRACE_S,
            ping_timeout_s,
            lambda lost: self.abort(str(lost), without=lost.rank),
        )

    def _split(self, found: Mapping[int, Any]) -> tuple[Replies, list[LostActor]]:
        replies: Replies = {}
        for rank, answer in found.items():
            if isinstance(answer, Exception):  # Ray could not call it
                self.is_connected = False
                replies[rank] = Reply(rank, -1, self.digest, None, make_failure(answer, rank, None))
            elif isinstance(answer, Reply):
                self.is_connected = self.is_connected and answer.failure is None
                replies[rank] = answer
        return replies, [answer for answer in found.values() if isinstance(answer, LostActor)]

    # --- starting and ending ------------------------------------------------------------------------------------

    def start(self, ranks: Iterable[int]) -> list[LostActor]:
        """Start learners with these ranks, using standbys first; returns those that were lost.

        The first learners of a group have its state from the beginning; later ones need `sync_from`.

        Raises:
            ConfigError: the cluster has no place for them as `placement` asks.
            Exception: what building a learner raised.
        """
        timeout_s, ranks = self.config.build_timeout_s, list(ranks)
        self._placement.reserve(len({*self._actors, *ranks}) + self.config.num_standby_learners)
        standbys = {rank: standby for rank in ranks if (standby := self.standbys.take()) is not None}
        started = {
            rank: (standbys[rank].actor, standbys[rank].built)
            if rank in standbys
            else self._start_actor(rank)
            for rank in ranks
        }
        new = {rank: actor for rank, (actor, _) in started.items()}
        self._unsynced |= set(ranks if self._actors else ())
        self._actors |= new
        places = {rank: actor.locate() for rank, actor in new.items() if actor.location is None}
        locations = gather(self._calls, places, timeout_s)
        lost = [each for each in locations.values() if isinstance(each, LostActor)]
        for rank in locations.keys() - {each.rank for each in lost}:
            new[rank].location = locations[rank]
        refs = {rank: built for rank, (actor, built) in started.items() if actor.location is not None}
        # without pings: no other thread can answer while a framework is imported
        replies, others = self._split(gather(self._calls, refs, timeout_s))
        raise_failures(replies)
        return lost + others

    def _start_actor(self, rank: int = -1) -> tuple[Actor, Any]:
        """Start an actor, without waiting; returns it and the reference to the reply of its `build`."""
        import cloudpickle

        config = self.config
        threads = max(1, int(config.num_cpus_per_learner))
        actor = self._placement.start(LearnerActor, (rank, threads, sys.path))
        return actor, actor.call("build", cloudpickle.dumps(config), cloudpickle.dumps(self._plugins))

    def build_error(self, lost: LostActor) -> PlugradError:
        """The error for a learner that was lost while it was built."""
        if lost.died:
            return LearnerGroupDeadError(f"{lost} while it was built", rank=lost.rank)
        resources = self.ray.available_resources().items()
        free = ", ".join(f"{name} {number:g}" for name, number in resources if ":" not in name)
        config = self.config
        return LearnerTimeoutError(
            f"learner {lost.rank} was not built in build_timeout_s={config.build_timeout_s:g}; "
            f"{len(self)} learners ask Ray for {config.num_cpus_per_learner:g} CPUs and "
            f"{config.num_gpus_per_learner:g} GPUs each; free are: {free or 'none'}",
            rank=lost.rank,
            phase="build",
        )

    def follow(self) -> None:
        """Bring the standbys closer to the group's state, without waiting."""
        if self.synced:
            self.standbys.follow(self._actors[self.synced[-1]])

    def remove_worker(self, lost: LostActor) -> None:
        """Remove an actor from the group and kill it."""
        self._unsynced.discard(lost.rank)
        if actor := self._actors.pop(lost.rank, None):  # missing in a group that is being shut down
            actor.kill()
        self.is_connected = False

    def dismiss(self, ranks: Iterable[int]) -> None:
        """Shut down learners that the group does not need, and end their processes."""
        if ranks := [rank for rank in ranks if rank in self._actors]:
            self.call_learners("shutdown", (), {}, ranks=ranks, timeout_s=SHUTDOWN_S)
            self._unsynced -= set(ranks)
            kill_all([self._actors.pop(rank) for rank in ranks], SHUTDOWN_S)

    def renumber_ranks(self, first: int) -> None:
        """Give the remaining actors new ranks from 0; the one of rank `first` becomes 0."""
        order = [first, *(rank for rank in self.ranks if rank != first)]
        self._actors = {rank: self._actors[former] for rank, former in enumerate(order)}

    def shutdown(self) -> None:
        """Shut down all learners and end their processes, whatever state they are in."""
        try:
            self.abort("the group is shut down")
            self.call_learners("shutdown", (), {}, timeout_s=SHUTDOWN_S)
        except LearnerGroupDeadError:
            pass  # Ray itself is gone
        finally:
            actors, self._actors = self._actors, {}
            kill_all([*actors.values(), *self.standbys.close()], SHUTDOWN_S)
            self._placement.release()
            self._clean_up(*self._joined)

    # --- collective and state -----------------------------------------------------------------------------------

    def connect(self) -> list[LostActor]:
        """Connect the learners in a new collective; returns those that were lost meanwhile.

        Raises:
            ConfigError: the collective that the config names cannot be used where the learners are.
            Exception: they could not connect although none was lost.
        """
        self._epoch += 1
        name, key = self._choose_collective(), token_hex(16)
        former, self._joined = self._joined, (name, key)
        try:
            return self._connect(name or "", key)
        finally:
            self._clean_up(*former)

    def _clean_up(self, name: str | None, key: str) -> None:
        if name is not None:
            load_collective(name).clean_up(key)

    def _choose_collective(self) -> str | None:
        if len(self) == 1:
            self.collective = None
            return None
        hosts = len({actor.node for actor in self._actors.values()})
        name = choose_collective(self.config.collective, place_of(self.config, len(self), hosts))
        if name != self.collective:
            log.info(
                "%d learners on %d %s sum gradients by %r (collective=%r)",
                len(self),
                hosts,
                "machine" if hosts == 1 else "machines",
                name,
                self.config.collective,
            )
        self.collective = name
        return name

    def _connect(self, name: str, key: str) -> list[LostActor]:
        timeout_s = self.config.timeout_s
        refs = {
            rank: actor.call("contact", name, Membership(rank, len(self), self._epoch, key, timeout_s))
            for rank, actor in self._actors.items()
        }
        # the timeout for building: the first collective may import a framework
        contacts, lost = self._split(self._gather(refs, self.config.build_timeout_s))
        if lost:
            return lost
        raise_failures(contacts)
        self.is_connected = True
        replies, lost = self.call("enter", [contacts[rank].value for rank in self.ranks])
        if not lost:
            raise_failures(replies)
        return lost

    def sync_from(self, source: int, ranks: Iterable[int] | None = None) -> list[LostActor]:
        """Give the state of one learner to others; returns those that were lost meanwhile.

        Args:
            source: rank of the learner that gives its state.
            ranks: ranks of the others; new learners are always added; None: all.

        Returns:
            The actors that were lost.

        Raises:
            Exception: a learner could not give or load the state.
        """
        timeout_s = self.config.build_timeout_s
        reply, state = self._actors[source].call("copy_sync_state", True, num_returns=2)
        replies, lost = self._split(self._gather({source: reply}, timeout_s))
        if lost:
            return lost
        raise_failures(replies)
        others = (set(self.ranks) if ranks is None else self._unsynced | set(ranks)) - {source}
        replies, lost = self.call("set_sync_state", state, ranks=sorted(others), timeout_s=timeout_s)
        if not lost:
            raise_failures(replies)
            self._unsynced = set()
        return lost


def place_of(config: Config, num_learners: int, num_hosts: int) -> Place:
    """Where learners are, for the choice of a collective.

    Args:
        config: the group's config.
        num_learners: the number of learners.
        num_hosts: the number of machines, which are assumed to be like this one.

    Returns:
        The place.
    """
    return Place(num_learners, num_hosts, platform.machine(), config.num_gpus_per_learner)
