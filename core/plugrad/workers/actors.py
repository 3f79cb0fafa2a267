"""Actors in Ray: start them, call them, and kill them whatever state they are in."""

import os
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from textwrap import shorten
from time import monotonic, sleep
from typing import Any

from plugrad.workers.answers import LostActor
from plugrad.workers.ray_cluster import check_raylet

CONTROL = "control"
"""Concurrency group of calls that run beside the one that an actor is busy with."""


class Actor:
    """One actor and its process.

    Args:
        ray: the module.
        handle: Ray's handle of the actor.

    Attributes:
        location: Ray's id of its node and its process id; None until `locate()` was answered.
        is_ended: whether Ray was told to end it.
    """

    def __init__(self, ray: Any, handle: Any) -> None:
        self._ray = ray
        self._handle = handle
        self.location: tuple[str, int] | None = None
        self.is_ended = False

    @property
    def node(self) -> str | None:
        """Ray's id of its node."""
        return None if self.location is None else self.location[0]

    def locate(self) -> Any:
        """Ask for its location; returns Ray's reference to it."""
        check_raylet(self._ray)
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
        check_raylet(self._ray)
        remote = getattr(self._handle, method).options(
            num_returns=num_returns, **({"concurrency_group": CONTROL} if control else {})
        )
        return remote.remote(*args)

    def terminate(self) -> None:
        """Let Ray end it, without waiting."""
        self.is_ended = True
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


def start_actor(
    ray: Any, actor_class: type[Any], arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> Actor:
    """Start an actor without waiting for it.

    Args:
        ray: the module.
        actor_class: its class.
        arguments: of the class.
        options: Ray's, such as `num_cpus`.

    Returns:
        The actor.

    Raises:
        LearnerGroupDeadError: Ray itself is gone.
    """
    check_raylet(ray)
    remote = ray.remote(concurrency_groups={CONTROL: 1})(actor_class)
    settings = {"max_restarts": 0, "max_task_retries": 0, **options}
    return Actor(ray, remote.options(**settings).remote(*arguments))


class RayCalls:
    """Answers of Ray's actors, for `gather`.

    Args:
        ray: the module.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def wait(self, refs: Sequence[Any], timeout_s: float) -> Sequence[Any]:
        """See `Calls.wait`."""
        done: Sequence[Any] = self._ray.wait(list(refs), num_returns=1, timeout=timeout_s)[0]
        return done

    def get(self, rank: int, ref: Any) -> Any:
        """See `Calls.get`."""
        check_raylet(self._ray)
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            return error.cause if isinstance(error.cause, Exception) else error
        except self._ray.exceptions.RayError as error:
            return LostActor(rank, True, f"died ({type(error).__name__}: {_shorten(error)})")


def _shorten(error: Exception) -> str:
    """The first line of Ray's message, and the beginning of the last, which has the cause."""
    first, *others = str(error).strip().splitlines()
    return f"{first} [...] {shorten(others[-1], 200)}" if others else first
