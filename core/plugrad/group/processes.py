"""Actors of one kind in Ray: started, asked all at once with a timeout, and ended whatever state they are in.

What an actor does is its class's business; what a silent one means, the caller's.
"""

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
"""Calls of this group run beside the one that an actor is busy with."""


@dataclass(frozen=True)
class Lost:
    """An actor that gave no answer.

    Args:
        rank: whose place it had.
        died: whether it is dead; else it did not answer in time.
        said: what happened.
        phase: what it was asked for.
    """

    rank: int
    died: bool
    said: str
    phase: str = ""

    def __str__(self) -> str:
        return f"learner {self.rank} {self.said}"


class Process:
    """One actor.

    Args:
        ray: the module.
        handle: of the actor.

    Attributes:
        place: Ray's id of its node and its process id; None until it is known.
    """

    def __init__(self, ray: Any, handle: Any) -> None:
        self._ray = ray
        self._handle = handle
        self.place: tuple[str, int] | None = None

    @property
    def node(self) -> str | None:
        """Ray's id of its node."""
        return None if self.place is None else self.place[0]

    def find(self) -> Any:
        """Reference to its place."""
        raylet.check(self._ray)
        return self._handle.__ray_call__.remote(_place)

    def ask_for_sign_of_life(self) -> Any:
        """Reference to nothing: a thread beside the busy one answers, but no process that stands still."""
        return self._handle.__ray_call__.options(concurrency_group=CONTROL).remote(_say_nothing)

    def call(self, method: str, *args: Any, control: bool = False, num_returns: int = 1) -> Any:
        """Ask for something; returns Ray's reference to the answer."""
        raylet.check(self._ray)
        remote = getattr(self._handle, method).options(
            num_returns=num_returns, **({"concurrency_group": CONTROL} if control else {})
        )
        return remote.remote(*args)

    def dismiss(self) -> None:
        """Let Ray end it; not waited for."""
        with suppress(Exception):
            self._ray.kill(self._handle, no_restart=True)

    @property
    def is_near(self) -> bool:
        """Whether it is on this node."""
        return self._ray.is_initialized() and bool(self.node == self._ray.get_runtime_context().get_node_id())

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended."""
        if self.place is None or not self.is_near:
            return False
        try:
            os.kill(self.place[1], 0)
        except ProcessLookupError:
            return True
        return False

    def kill(self) -> None:
        """End it at once, also if it is stopped and cannot be asked to."""
        self.dismiss()
        if self.place is None:
            return
        node, pid = self.place
        if self.is_near:
            _end(pid)
        else:
            with suppress(Exception):
                where = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
                self._ray.remote(num_cpus=0, max_retries=0)(_end).options(scheduling_strategy=where).remote(
                    pid
                )


def end_all(processes: Collection[Process], patience_s: float) -> None:
    """End actors: those that Ray cannot end in time, by force."""
    for process in processes:
        process.dismiss()
    deadline = monotonic() + patience_s
    while monotonic() < deadline and any(process.is_near and not process.is_gone for process in processes):
        sleep(0.02)
    for process in processes:
        if not process.is_gone:
            process.kill()


def _place(actor: Any) -> tuple[str, int]:
    import ray

    return ray.get_runtime_context().get_node_id(), os.getpid()


def _say_nothing(actor: Any) -> None:
    pass


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def start(
    ray: Any, actor_class: type[Any], arguments: Sequence[tuple[Any, ...]], options: Mapping[str, Any]
) -> list[Process]:
    """New actors, one for each tuple of arguments; they are not waited for."""
    raylet.check(ray)
    remote = ray.remote(concurrency_groups={CONTROL: 1})(actor_class)
    settings = {"max_restarts": 0, "max_task_retries": 0, **options}
    return [Process(ray, remote.options(**settings).remote(*each)) for each in arguments]


def answers(
    ray: Any,
    refs: Mapping[int, Any],
    timeout_s: float,
    on_lost: Callable[[Lost], None] | None = None,
    waited_s: float = 0.0,
) -> dict[int, Any]:
    """What actors answer, by rank; for those that died or say nothing `Lost`, for an error of Ray's the error.

    Args:
        ray: the module.
        refs: `{rank: reference}`.
        timeout_s: seconds for all of them together.
        on_lost: called as soon as one is found dead, while others are still waited for.
        waited_s: how long they were waited for before; `Lost` tells it.
    """
    ranks = {ref: rank for rank, ref in refs.items()}
    found: dict[int, Any] = {}
    deadline = monotonic() + timeout_s
    while len(found) < len(refs):
        waiting = [ref for rank, ref in refs.items() if rank not in found]
        done, _ = ray.wait(waiting, num_returns=1, timeout=max(0.0, deadline - monotonic()))
        if not done:
            silent = f"did not answer in {waited_s + timeout_s:g} s"
            found |= {ranks[ref]: Lost(ranks[ref], False, silent) for ref in waiting}
        for ref in done:
            found[ranks[ref]] = _answer(ray, ranks[ref], ref)
            if on_lost is not None and isinstance(found[ranks[ref]], Lost):
                on_lost(found[ranks[ref]])
    return dict(sorted(found.items()))


def patient_answers(
    ray: Any,
    processes: Mapping[int, Process],
    refs: Mapping[int, Any],
    timeout_s: float,
    usual_s: float,
    on_lost: Callable[[Lost], None] | None = None,
    waited_s: float = 0.0,
) -> dict[int, Any]:
    """`answers` of those that may take long, to compile say, but must give a sign of life in the usual time.

    Args: as `answers`, and
        processes: by rank.
        usual_s: seconds after which one that has given no sign of life is lost.
    """
    if timeout_s <= usual_s:
        return answers(ray, refs, timeout_s, on_lost, waited_s)
    signs = {rank: processes[rank].ask_for_sign_of_life() for rank in refs}
    found = answers(ray, refs, usual_s, on_lost, waited_s)
    silent = {rank for rank, each in found.items() if isinstance(each, Lost) and not each.died}
    seen = answers(ray, {rank: signs[rank] for rank in silent}, 0.0)
    busy = {rank: refs[rank] for rank in silent if not isinstance(seen[rank], Lost)}
    for rank in silent - busy.keys():
        if on_lost is not None:
            on_lost(found[rank])
    if not busy:
        return found
    later = patient_answers(ray, processes, busy, timeout_s - usual_s, usual_s, on_lost, waited_s + usual_s)
    return found | later


def _answer(ray: Any, rank: int, ref: Any) -> Any:
    raylet.check(ray)
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        return error.cause if isinstance(error.cause, Exception) else error
    except ray.exceptions.RayError as error:
        return Lost(rank, True, f"died ({type(error).__name__}: {_said(error)})")


def _said(error: Exception) -> str:
    """The first line of what Ray says, and the beginning of the last, which has the cause."""
    first, *others = str(error).strip().splitlines()
    return f"{first} [...] {shorten(others[-1], 200)}" if others else first
