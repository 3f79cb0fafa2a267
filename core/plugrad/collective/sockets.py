"""A collective over sockets, for processes on several machines: all send to rank 0, which adds up and sends back.

`multiprocessing.connection` with its handshake (HMAC) and raw bytes: nothing is pickled. Each end waits in short turns,
so that an abort is noticed; a stopped process is noticed when its buffers are full or its turn comes.
"""

import os
import secrets
import socket
import struct
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np

from plugrad.collective.protocol import Address, Collective, gave_up
from plugrad.errors import CollectiveError
from plugrad.types import Array

PIECE_BYTES = 1 << 20
_TURN_S = 0.05


def listen(size: int) -> tuple[Listener, bytes]:
    """Listen on the address by which other machines reach this one, for who has the key."""
    key = secrets.token_bytes(32)
    own = os.environ.get("PLUGRAD_HOST") or _own_address()
    return Listener((own, 0), backlog=size, authkey=key), key


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: asks which interface leads out
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


class Star(Collective):
    """See the module."""

    def __init__(self, address: Address, rank: int, hosted: Any) -> None:
        super().__init__(rank, address.size)
        self._address = address
        self._listener: Listener | None = hosted
        self._ends: dict[int, Connection] = {}

    def enter(self) -> None:
        """See `Collective`."""
        if self._listener is None:
            self._ends = {0: _called(self._address, self.rank)}
        else:
            self._ends = self._accepted(self._listener)
        for end in self._ends.values():
            self._set_up(end)
        self.meet()

    def _accepted(self, listener: Listener) -> dict[int, Connection]:
        ends: dict[int, Connection] = {}
        deadline = self._deadline()
        listener._listener._socket.settimeout(_TURN_S)  # type: ignore[attr-defined]
        while len(ends) < self.size - 1:
            try:
                end = listener.accept()
            except TimeoutError:
                self._check(deadline, next(n for n in range(1, self.size) if n not in ends))
            except AuthenticationError as error:
                raise CollectiveError("a stranger without the key came to the exchange") from error
            else:
                ends[int.from_bytes(end.recv_bytes(8), "big")] = end
        return dict(sorted(ends.items()))

    def _set_up(self, end: Connection) -> None:
        seconds, rest = divmod(self.timeout_s, 1)
        limit = struct.pack("ll", int(seconds), int(1e6 * rest))
        with socket.fromfd(end.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
            same.setblocking(True)
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def give_up(self) -> None:
        """See `Collective`."""
        self.abort("this learner gave up")
        self.close()

    def close(self) -> None:
        """See `Collective`."""
        for end in (self._listener, *self._ends.values()):
            if end is not None:
                end.close()

    def _sum(self, values: Array) -> Array:
        flat = values.reshape(-1)
        if self.rank:
            self._send(0, flat)
            return self._receive(0, flat).reshape(values.shape)
        total = flat.copy()
        for rank in self._ends:
            total += self._receive(rank, flat)
        for rank in self._ends:
            self._send(rank, total)
        return total.reshape(values.shape)

    def _send(self, rank: int, flat: Array) -> None:
        try:
            self._ends[rank].send_bytes(struct.pack("!q", flat.nbytes))
            raw = flat.view(np.uint8)
            for start in range(0, raw.size, PIECE_BYTES):
                self._ends[rank].send_bytes(raw[start : start + PIECE_BYTES].data)
        except OSError as error:
            raise gave_up(rank) from error

    def _receive(self, rank: int, like: Array) -> Array:
        found = np.empty_like(like)
        (size,) = struct.unpack("!q", self._next(rank))
        if size != like.nbytes:
            raise CollectiveError(
                f"learner {rank} brought {size} bytes to the exchange, learner {self.rank} {like.nbytes}: "
                "they do not compute the same thing",
                rank=rank,
            )
        raw = found.view(np.uint8)
        for start in range(0, raw.size, PIECE_BYTES):
            raw[start : start + PIECE_BYTES] = np.frombuffer(self._next(rank), np.uint8)
        return found

    def _next(self, rank: int) -> bytes:
        deadline = self._deadline()
        while not self._has_something(rank):
            self._check(deadline, rank)
        try:
            return self._ends[rank].recv_bytes(PIECE_BYTES)
        except (OSError, EOFError) as error:
            raise gave_up(rank) from error

    def _has_something(self, rank: int) -> bool:
        try:
            return self._ends[rank].poll(_TURN_S)
        except OSError as error:
            raise gave_up(rank) from error


def _called(address: Address, rank: int) -> Connection:
    try:
        end = Client(tuple(address.place), authkey=address.key)
        end.send_bytes(rank.to_bytes(8, "big"))
    except OSError as error:
        raise CollectiveError(f"learner 0 cannot be reached at {address.place}: {error}") from error
    return end
