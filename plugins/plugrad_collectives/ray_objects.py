"""`RayObjects`: a collective over Ray's object transfer, for groups across machines where torch is not installed.

Each process is a Ray actor. It sends its array to every other one, and adds all arrays in the order of ranks. An array
is delivered by a call to the receiving actor in the concurrency group `CONTROL`, which runs beside the call that waits.
A mailbox keeps it under its epoch's key and the number of its sum, so that arrays of older sums are never added.
"""

from collections.abc import Sequence
from threading import Condition
from time import monotonic
from typing import Any

import numpy as np
import ray
from ray import cloudpickle

from plugrad.collective import Collective, Membership, left_error
from plugrad.errors import CollectiveError
from plugrad.types import Array
from plugrad.workers.actors import CONTROL

STORED_BYTES = 100_000
"""Larger arrays are put into Ray's object store once, and read there in place; smaller ones travel with the call."""
_POLL_S, _PROBE_S = 0.05, 0.25


class _Mailbox:
    """What others delivered to one collective of this process."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.arrays: dict[tuple[int, int], Array] = {}
        """By the sum's number and the sender's rank."""
        self.left: set[int] = set()


_mailboxes: dict[str, _Mailbox] = {}
"""Mailboxes of this process's open collectives, by the key of their epoch."""


class RayObjects(Collective):
    """A collective by Ray's objects; see the module. Its processes are Ray actors with the group `CONTROL`."""

    requires = "ray"

    def __init__(self, membership: Membership) -> None:
        super().__init__(membership)
        self._others = [rank for rank in range(self.size) if rank != self.rank]
        self._mailbox = _Mailbox()
        self._actors: dict[int, Any] = {}
        self._signs: dict[int, Any] = {}
        self._count = 0

    def contact(self) -> bytes:
        """See `Collective`: Ray's handle of this actor."""
        try:
            actor = ray.get_runtime_context().current_actor
        except Exception as error:  # Ray's are of many kinds
            raise CollectiveError(
                f"this process is no Ray actor, so Ray cannot deliver to it: {error}"
            ) from error
        _mailboxes[self.membership.key] = self._mailbox
        contact: bytes = cloudpickle.dumps(actor)  # type: ignore[no-untyped-call]
        return contact

    def enter(self, contacts: Sequence[bytes]) -> None:
        """See `Collective`."""
        self._actors = {rank: cloudpickle.loads(contacts[rank]) for rank in self._others}
        self.sum(np.zeros(1))

    def sum(self, array: Array) -> Array:
        """See `Collective`."""
        self._count += 1
        stored = ray.put(array) if array.nbytes > STORED_BYTES and self._others else array
        for rank in self._others:
            self._signs[rank] = self._call(rank, _deliver, self._count, stored)
        deadline = self.deadline()
        found = {rank: self._await(rank, array, deadline) for rank in self._others}
        parts = [found.get(rank, array) for rank in range(self.size)]
        total = np.array(parts[0])
        for part in parts[1:]:
            np.add(total, part, out=total)
        return total

    def _call(self, rank: int, function: Any, *args: Any) -> Any:
        """Call a function in another process; returns Ray's reference to the answer."""
        call = self._actors[rank].__ray_call__.options(concurrency_group=CONTROL)
        return call.remote(function, self.membership.key, self.rank, *args)

    def _await(self, rank: int, own: Array, deadline: float) -> Array:
        """The array that another process delivers."""
        box, place, probed = self._mailbox, (self._count, rank), monotonic()
        while True:
            with box.changed:
                box.changed.wait_for(lambda: place in box.arrays or self._has_to_end(rank), _POLL_S)
                found, has_left = box.arrays.pop(place, None), rank in box.left
            if found is not None:
                return self._checked(found, own, rank)
            if has_left:
                raise left_error(rank)
            self.check(deadline, rank)
            if monotonic() - probed > _PROBE_S:
                self._check_alive(rank)
                probed = monotonic()

    def _has_to_end(self, rank: int) -> bool:
        return self.failure is not None or rank in self._mailbox.left

    def _checked(self, found: Array, own: Array, rank: int) -> Array:
        if (found.shape, found.dtype) != (own.shape, own.dtype):
            raise CollectiveError(
                f"learner {rank} brought {found.dtype} {found.shape} to the exchange, learner {self.rank} "
                f"{own.dtype} {own.shape}: they do not compute the same thing",
                rank=rank,
            )
        return found

    def _check_alive(self, rank: int) -> None:
        """Raise if Ray says that another process is gone; else ask it for the next sign of life."""
        done, _ = ray.wait([self._signs[rank]], timeout=0)
        if not done:
            return
        try:
            ray.get(done[0])
        except ray.exceptions.RayError as error:
            raise left_error(rank) from error
        self._signs[rank] = self._call(rank, _answer)

    def abort(self, reason: str) -> None:
        """See `Collective`."""
        super().abort(reason)
        with self._mailbox.changed:
            self._mailbox.changed.notify_all()

    def leave(self) -> None:
        """See `Collective`."""
        super().leave()
        if ray.is_initialized():
            for rank in self._actors:
                self._call(rank, _say_left)
        self._actors = {}

    def close(self) -> None:
        """See `Collective`."""
        self.leave()
        _mailboxes.pop(self.membership.key, None)


def _deliver(actor: Any, key: str, sender: int, count: int, array: Array) -> None:
    box = _mailboxes.get(key)
    if box is not None:
        with box.changed:
            box.arrays[count, sender] = array
            box.changed.notify_all()


def _say_left(actor: Any, key: str, sender: int) -> None:
    box = _mailboxes.get(key)
    if box is not None:
        with box.changed:
            box.left.add(sender)
            box.changed.notify_all()


def _answer(actor: Any, key: str, sender: int) -> None:
    """Answer that this process lives."""
