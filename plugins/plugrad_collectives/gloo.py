"""`Gloo`: a collective over torch's gloo, for processes on one machine or several.

It makes its own process group and leaves torch's default group to the user. When `enter` returns, all processes are
connected and have proved to each other that they know the group's key.

For a sum, the processes first exchange frames: a header, and the array if it is small. Headers are compared before
anything is added, because gloo ends the process if arrays differ in size. Small arrays are added in the order of ranks;
larger ones are summed by gloo's all-reduce.

gloo encrypts nothing: whoever can change packets on the network can change sums.
"""

import hmac
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import distributed

from plugrad.collective import Collective, Membership, Place, left_error
from plugrad.errors import CollectiveError
from plugrad.types import Array
from plugrad_collectives.contacts import ContactStore, get_own_address

FRAMES_BYTES = 1 << 20
"""Bytes that a process sends to all others together in frames; larger arrays are summed by gloo's all-reduce."""
_HEADER = struct.Struct("<QQ16s")
"""Which sum it is, its bytes, its dtype."""
_POLL_S = 0.02
_RANKS, _NONCE, _MAC = struct.Struct("<QQQ"), 32, 32
_PROOF, _FRAME, _NEVER = range(3)
"""Tags of messages; nobody sends the last."""
_AS_TORCH = {"uint32": "int32", "uint64": "int64", "complex64": "float32", "complex128": "float64"}
"""Dtypes that gloo does not have, and the dtypes as which their bytes are summed."""
_Works = list[tuple[int, Any]]
"""Messages under way: the rank at the other end, and torch's handle."""


class Gloo(Collective):
    """A collective over gloo; see the module."""

    requires = "torch"

    def __init__(self, membership: Membership) -> None:
        super().__init__(membership)
        self._others = [rank for rank in range(self.size) if rank != self.rank]
        self._store = ContactStore()
        self._connected = Event()
        self._group: Any = None
        self._error: Exception | None = None
        self._count = 0
        self._sent: _Works = []
        self._awaited: _Works = []
        self._frame_bytes = FRAMES_BYTES // max(self.size - 1, 1)
        self._frames, self._next_frames = (
            [_empty(_HEADER.size + self._frame_bytes) for _ in range(self.size)] for _ in "ab"
        )
        self._own_frame = _empty(_HEADER.size + self._frame_bytes)

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        """See `Collective`."""
        if distributed.is_available() and distributed.is_gloo_available():
            return None
        return 'this torch was built without gloo; type learners(collective="ray")'

    def contact(self) -> bytes:
        """See `Collective`: the address on which gloo listens."""
        gloo: Any = distributed.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = timedelta(seconds=self.timeout_s)
        options._threads = 1
        try:
            # A device that is not lazy still listens while its connections are freed.
            options._devices = [gloo.create_device(hostname=get_own_address(), lazy_init=True)]
            self._group = gloo(self._store, self.rank, self.size, options)
        except RuntimeError as error:
            raise CollectiveError(
                f"gloo cannot listen on {get_own_address()}: {error}; "
                "set PLUGRAD_HOST to an address of this machine"
            ) from error
        contact = self._store.read_contact(self.timeout_s)
        if contact is None:
            raise self.failure or CollectiveError("gloo has not said where it listens")
        return contact

    def enter(self, contacts: Sequence[bytes]) -> None:
        """See `Collective`."""
        deadline = self.deadline()
        self._store.enter(contacts)
        Thread(target=self._connect, name="plugrad-gloo", daemon=True).start()
        while not self._connected.wait(_POLL_S):
            self.check(deadline, None)
        if self._error is not None:
            self.check(deadline, None)
            raise CollectiveError(f"learner {self.rank} cannot reach the others: {self._error}")
        self._prove_the_key(deadline)

    def _connect(self) -> None:
        """Ask for the first frames: gloo connects when it is first used. An abort cannot end its wait."""
        try:
            self._await_next()
        except Exception as error:
            self._error = error
            self._free()
        self._connected.set()
        if self.failure is not None:  # an abort in the meantime found no connection
            self._disconnect()

    def _prove_the_key(self, deadline: float) -> None:
        """Prove the key to each other process, and have it prove it. The key itself is not sent."""
        own = os.urandom(_NONCE)
        nonces = self._swap(dict.fromkeys(self._others, own), deadline)
        proofs = {rank: self._proof(self.rank, rank, own, nonces[rank]) for rank in self._others}
        for rank, proof in self._swap(proofs, deadline).items():
            if not hmac.compare_digest(proof, self._proof(rank, self.rank, nonces[rank], own)):
                raise CollectiveError(
                    f"who answered for learner {rank} does not have this group's key", rank=rank
                )

    def _proof(self, sender: int, receiver: int, of_sender: bytes, of_receiver: bytes) -> bytes:
        what = _RANKS.pack(self.membership.epoch, sender, receiver) + of_sender + of_receiver
        return hmac.digest(self.membership.key.encode(), what, "sha256")

    def _swap(self, messages: dict[int, bytes], deadline: float) -> dict[int, bytes]:
        """Send a message of `_NONCE` bytes to each other process, and receive one from it."""
        found = {rank: _empty(_NONCE) for rank in messages}
        sent = {rank: torch.frombuffer(bytearray(each), dtype=torch.uint8) for rank, each in messages.items()}
        self._finish(self._receive(_PROOF, found) + self._send(_PROOF, sent), deadline)
        return {rank: each.numpy().tobytes() for rank, each in found.items()}

    def sum(self, array: Array) -> Array:
        """See `Collective`."""
        flat = array.reshape(-1)
        total = np.empty_like(flat)
        deadline = self.deadline()
        try:
            self._swap_frames(flat, total, deadline)
            if flat.nbytes > self._frame_bytes:
                self._sum_by_gloo(flat, total, deadline)
        except BaseException:
            self._disconnect()  # before the arrays go: from now on gloo neither reads nor writes them
            raise
        return total.reshape(array.shape)

    def _swap_frames(self, flat: Array, total: Array, deadline: float) -> None:
        """Exchange headers, and add up a small array that comes with them."""
        self._finish(self._sent, deadline)  # of the last sum
        self._count += 1
        header = _HEADER.pack(self._count, flat.nbytes, flat.dtype.str.encode())
        is_small = flat.nbytes <= self._frame_bytes
        end = _HEADER.size + (flat.nbytes if is_small else 0)
        own = self._own_frame.numpy()
        own[: _HEADER.size] = np.frombuffer(header, np.uint8)
        if is_small:
            own[_HEADER.size : end] = flat.view(np.uint8)
        self._sent = self._send(_FRAME, dict.fromkeys(self._others, self._own_frame[:end]))
        self._finish(self._awaited, deadline)
        frames = [own if rank == self.rank else self._frames[rank].numpy() for rank in range(self.size)]
        # Of one who left after this sum: sending to it in the next one says so.
        with suppress(CollectiveError):
            self._await_next()
        for rank in self._others:
            if (found := frames[rank][: _HEADER.size].tobytes()) != header:
                raise self._mismatch(rank, header, found)
        if is_small:
            _add([frame[_HEADER.size : end].view(flat.dtype) for frame in frames], total)

    def _await_next(self) -> None:
        """Let gloo receive the next frames of the others.

        If it were asked when the next sum begins, each process would first have to say that it can receive.
        """
        self._frames, self._next_frames = self._next_frames, self._frames
        self._awaited = self._receive(_FRAME, {rank: self._frames[rank] for rank in self._others})

    def _mismatch(self, rank: int, own: bytes, found: bytes) -> CollectiveError:
        brought = []
        for header in (found, own):
            count, num_bytes, dtype = _HEADER.unpack(header)
            name = dtype.rstrip(b"\0").decode(errors="replace")
            brought.append(f"{num_bytes} bytes of {name} as exchange no. {count}")
        return CollectiveError(
            f"learner {rank} brought {brought[0]}, learner {self.rank} {brought[1]}: "
            "they do not compute the same thing",
            rank=rank,
        )

    def _sum_by_gloo(self, flat: Array, total: Array, deadline: float) -> None:
        """Let gloo sum what all are known to bring alike, with the same bits for all."""
        np.copyto(total, flat)
        options = distributed.AllreduceOptions()
        options.timeout = _seconds_until(deadline)
        tensor = torch.from_numpy(total.view(_AS_TORCH.get(total.dtype.name, total.dtype)))
        missing = self._others[0] if self.size == 2 else None
        try:
            self._group.allreduce([tensor], options).wait(options.timeout)
        except RuntimeError as error:
            self.check(deadline, missing)
            raise CollectiveError(
                f"a learner left the exchange, or learner {self.rank} cannot sum {total.dtype}: {error}",
                rank=missing,
            ) from error

    def _send(self, tag: int, tensors: dict[int, torch.Tensor]) -> _Works:
        return [self._begin("send", rank, each, tag) for rank, each in tensors.items()]

    def _receive(self, tag: int, tensors: dict[int, torch.Tensor]) -> _Works:
        """Receive into tensors, which may be longer than what is sent."""
        return [self._begin("recv", rank, each, tag) for rank, each in tensors.items()]

    def _begin(self, call: str, rank: int, tensor: torch.Tensor, tag: int) -> tuple[int, Any]:
        if self.failure is not None:
            raise self.failure
        try:
            return rank, getattr(self._group, call)([tensor], rank, tag)
        except RuntimeError as error:  # gloo knows already that the connection is broken
            raise self.failure or left_error(rank) from error

    def _finish(self, works: _Works, deadline: float) -> None:
        """Wait for messages. gloo ends the wait, which lets other threads run, when a connection breaks."""
        for rank, work in works:
            try:
                work.wait(_seconds_until(deadline))
            except RuntimeError as error:
                self._disconnect()
                works.clear()
                del work  # the error, which somebody may keep, keeps what this call has
                self.check(deadline, rank)
                raise left_error(rank) from error

    def abort(self, reason: str) -> None:
        """See `Collective`. The other processes notice it at once, since the connections are closed."""
        super().abort(reason)
        self._store.close()
        self._disconnect()

    def _disconnect(self) -> None:
        """Close all connections: gloo does that when a receive times out, and has no call for it.

        None may stay: gloo's thread never ends while one has bytes that nobody receives, and freeing it would hang.
        """
        group = self._group
        if group is not None and self._connected.is_set():
            for rank in self._others:
                with suppress(RuntimeError):  # of the first one that is not broken yet, the receive times out
                    group.recv([_empty(1)], rank, _NEVER).wait(timedelta(milliseconds=1))

    def close(self) -> None:
        """See `Collective`."""
        self.leave()
        self._free()

    def _free(self) -> None:
        """Let gloo end its thread and its listener, which live as long as the group and each message.

        While a group listens that could not connect, a process that comes late would crash this one.
        """
        self._group, self._sent, self._awaited = None, [], []


def _seconds_until(deadline: float) -> timedelta:
    """A little more than is left, so that it is too late when gloo gives up."""
    return timedelta(seconds=max(deadline - monotonic(), 0.0) + _POLL_S)


def _empty(size: int) -> torch.Tensor:
    return torch.from_numpy(np.empty(size, np.uint8))


def _add(parts: list[Array], total: Array) -> None:
    """Add up arrays in their order."""
    np.copyto(total, parts[0]) if len(parts) == 1 else np.add(parts[0], parts[1], out=total)
    for part in parts[2:]:
        np.add(total, part, out=total)
