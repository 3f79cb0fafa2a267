"""Actors in Ray: started, called all at once with a timeout, and killed whatever state they are in."""

import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from textwrap import shorten
from time import monotonic, sleep
from typing import Any

from plugrad.group import raylet

CONTROL = "control"
"""Concurrency group of calls that run beside the one that an actor is busy with."""


@dataclass(frozen=True)
class LostActor:
    """An actor that did not answer.

    Args:
        rank: its rank.
        died: whether it is dead; else it did not answer in time.
        reason: what happened.
    """

    rank: int
    died: bool
    reason: str

    def __str__(self) -> str:
        return f"learner {self.rank} {self.reason}"


class Actor:
    """One actor and its process.

    Args:
        ray: the module.
        handle: Ray's handle of the actor.

    Attributes:
        location: Ray's id of its node and its process id; None until `locate()` was answered.
    """

    def __init__(self, ray: Any, handle: Any) -> None:
        self._ray = ray
        self._handle = handle
        self.location: tuple[str, int] | None = None

    @property
    def node(self) -> str | None:
        """Ray's id of its node."""
        return None if self.location is None else self.location[0]

    def locate(self) -> Any:
        """Ask for its location; returns Ray's reference to it."""
        raylet.check(self._ray)
        return self._handle.__ray_call__.remote(_get_location)

    def ping(self) -> Any:
        """Ask for a sign of life; a thread beside a busy one answers. Returns Ray's reference to None."""
        return self._handle.__ray_call__.options(concurrency_group=CONTROL).remote(_do_nothing)

    def call(self, method: str, *args: Any, control: bool = False, num_returns: int = 1) -> Any:
        """Call a method without waiting for it.

        Args:
            method: its name.
            *args: its arguments.
            control: whether it runs beside a call that the actor is busy with.
            num_returns: how many values it returns.

        Returns:
            Ray's reference to the answer, or a list of references if there are several.
        """
        raylet.check(self._ray)
        remote = getattr(self._handle, method).options(
            num_returns=num_returns, **({"concurrency_group": CONTROL} if control else {})
        )
        return remote.remote(*args)

    def terminate(self) -> None:
        """Let Ray end it, without waiting."""
        with suppress(Exception):
            self._ray.kill(self._handle, no_restart=True)

    @property
    def is_on_this_node(self) -> bool:
        """Whether its process is on this node."""
        return self._ray.is_initialized() and bool(self.node == self._ray.get_runtime_context().get_node_id())

    @property
    def has_exited(self) -> bool:
        """Whether its process is known to have ended."""
        if self.location is None or not self.is_on_this_node:
            return False
        try:
            os.kill(self.location[1], 0)
        except ProcessLookupError:
            return True
        return False

    def kill(self) -> None:
        """End it at once, also if its process is stopped."""
        self.terminate()
        if self.location is None:
            return
        node, pid = self.location
        if self.is_on_this_node:
            _kill_process(pid)
            return
        with suppress(Exception):
            there = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            kill = self._ray.remote(num_cpus=0, max_retries=0)(_kill_process)
            kill.options(scheduling_strategy=there).remote(pid)


def _get_location(actor: Any) -> tuple[str, int]:
    import ray

    return ray.get_runtime_context().get_node_id(), os.getpid()


def _do_nothing(actor: Any) -> None:
    pass


def _kill_process(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_all(actors: Collection[Actor], timeout_s: float) -> None:
    """End actors.

    Args:
        actors: to end.
        timeout_s: seconds that Ray has to end them; then their processes are killed.
    """
    for actor in actors:
        actor.terminate()
    deadline = monotonic() + timeout_s
    while monotonic() < deadline and any(actor.is_on_this_node and not actor.has_exited for actor in actors):
        sleep(0.02)
    for actor in actors:
        if not actor.has_exited:
            actor.kill()


def start_actors(
    ray: Any, actor_class: type[Any], arguments: Sequence[tuple[Any, ...]], options: Mapping[str, Any]
) -> list[Actor]:
    """Start actors without waiting for them.

    Args:
        ray: the module.
        actor_class: their class.
        arguments: of the class, one tuple per actor.
        options: Ray's, such as `num_cpus`.

    Returns:
        One actor per tuple.

    Raises:
        LearnerGroupDeadError: Ray itself is gone.
    """
    raylet.check(ray)
    remote = ray.remote(concurrency_groups={CONTROL: 1})(actor_class)
    settings = {"max_restarts": 0, "max_task_retries": 0, **options}
    return [Actor(ray, remote.options(**settings).remote(*each)) for each in arguments]


def gather(
    ray: Any,
    refs: Mapping[int, Any],
    timeout_s: float,
    on_lost: Callable[[LostActor], None] | None = None,
    waited_s: float = 0.0,
) -> dict[int, Any]:
    """Wait for the answers of actors.

    Args:
        ray: the module.
        refs: `{rank: reference}`.
        timeout_s: seconds for all of them together.
        on_lost: called as soon as one is found dead, while others are still waited for.
        waited_s: seconds that were waited before, for the reason of a `LostActor`.

    Returns:
        By rank the answer; a `LostActor` for an actor that died or did not answer, an exception for one of Ray's.
    """
    ranks = {ref: rank for rank, ref in refs.items()}
    found: dict[int, Any] = {}
    deadline = monotonic() + timeout_s
    while len(found) < len(refs):
        waiting = [ref for rank, ref in refs.items() if rank not in found]
        done, _ = ray.wait(waiting, num_returns=1, timeout=max(0.0, deadline - monotonic()))
        if not done:
            silent = f"did not answer in {waited_s + timeout_s:g} s"
            found |= {ranks[ref]: LostActor(ranks[ref], False, silent) for ref in waiting}
        for ref in done:
            found[ranks[ref]] = _get(ray, ranks[ref], ref)
            if on_lost is not None and isinstance(found[ranks[ref]], LostActor):
                on_lost(found[ranks[ref]])
    return dict(sorted(found.items()))


def gather_with_pings(
    ray: Any,
    actors: Mapping[int, Actor],
    refs: Mapping[int, Any],
    timeout_s: float,
    ping_timeout_s: float,
    on_lost: Callable[[LostActor], None] | None = None,
    waited_s: float = 0.0,
) -> dict[int, Any]:
    """`gather` the answers of actors that may take long, to compile for example, but must answer pings meanwhile.

    Args:
        ray: the module.
        actors: by rank.
        refs: `{rank: reference}`.
        timeout_s: seconds for all of them together.
        ping_timeout_s: seconds after which an actor that has not answered a ping is lost.
        on_lost: as in `gather`.
        waited_s: as in `gather`.

    Returns:
        As `gather`.
    """
    if timeout_s <= ping_timeout_s:
        return gather(ray, refs, timeout_s, on_lost, waited_s)
    pings = {rank: actors[rank].ping() for rank in refs}
    found = gather(ray, refs, ping_timeout_s, on_lost, waited_s)
    silent = {rank for rank, each in found.items() if isinstance(each, LostActor) and not each.died}
    pongs = gather(ray, {rank: pings[rank] for rank in silent}, 0.0)
    busy = {rank: refs[rank] for rank in silent if not isinstance(pongs[rank], LostActor)}
    for rank in silent - busy.keys():
        if on_lost is not None:
            on_lost(found[rank])
    if not busy:
        return found
    left_s, waited_s = timeout_s - ping_timeout_s, waited_s + ping_timeout_s
    return found | gather_with_pings(ray, actors, busy, left_s, ping_timeout_s, on_lost, waited_s)


def _get(ray: Any, rank: int, ref: Any) -> Any:
    raylet.check(ray)
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        return error.cause if isinstance(error.cause, Exception) else error
    except ray.exceptions.RayError as error:
        return LostActor(rank, True, f"died ({type(error).__name__}: {_shorten(error)})")


def _shorten(error: Exception) -> str:
    """The first line of Ray's message, and the beginning of the last, which has the cause."""
    first, *others = str(error).strip().splitlines()
    return f"{first} [...] {shorten(others[-1], 200)}" if others else first
