"""A collective over sockets, for processes on several machines: all send to rank 0, which adds up and sends back.

Raw bytes in the frames of `multiprocessing.connection`: nothing is pickled. Only who has the key is let in
(`handshake`). Each end waits in short turns, so that an abort is noticed; a process that stops in the middle of a piece
is noticed after `timeout_s`.
"""

import os
import secrets
import socket
import struct
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from plugrad.collective.handshake import TURN_S, Host, call
from plugrad.collective.protocol import Address, Collective, gave_up
from plugrad.errors import CollectiveError, PlugradError
from plugrad.types import Array

LOOPBACK = "127.0.0.1"
PIECE_BYTES = 1 << 20
BACKLOG = 64
"""So many more than the group's processes may wait to be let in: strangers do not keep them out."""


@dataclass(frozen=True)
class Door:
    """Where rank 0 listens.

    Args:
        socket: listens.
        key: of the group.
    """

    socket: socket.socket
    key: bytes

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.socket.getsockname()
        return host, port


def listen(size: int, host: str) -> Door:
    """Listen on an address of this machine, for who has a new key."""
    return Door(socket.create_server((host, 0), backlog=size + BACKLOG), secrets.token_bytes(32))


def own_address() -> str:
    """By which other machines reach this one: the variable PLUGRAD_HOST, or that of the interface that leads out."""
    if host := os.environ.get("PLUGRAD_HOST"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: asks which interface leads out
        except OSError:
            return LOOPBACK
        address: str = probe.getsockname()[0]
        return address


class Rank0Reduce(Collective):
    """See the module."""

    def __init__(self, address: Address, rank: int, hosted: Any) -> None:
        super().__init__(rank, address.size)
        self._address = address
        self._door: Door | None = hosted
        self._sockets: dict[int, socket.socket] = {}
        self._ends: dict[int, Connection] = {}
        self._limit_s = 0.0

    def enter(self) -> None:
        """See `Collective`."""
        deadline = self._deadline()
        if self._door is None:
            place, key, check = self._address.place, self._address.key, partial(self._check, deadline, 0)
            self._sockets = {0: call(tuple(place), key, self.rank, self.timeout_s, check)}
        else:
            host = Host(self._door.socket, self._door.key)
            self._sockets = host.accept(set(range(1, self.size)), partial(self._check, deadline))
        for rank, each in self._sockets.items():
            each.setblocking(True)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends[rank] = Connection(os.dup(each.fileno()))
        self.barrier()

    def _limit_waits(self) -> None:
        """Let no read and no write of a piece take longer than `timeout_s`."""
        if self._limit_s == self.timeout_s:
            return
        self._limit_s = self.timeout_s
        seconds, rest = divmod(self.timeout_s, 1)
        limit = struct.pack("ll", int(seconds), int(1e6 * rest))
        for each in self._sockets.values():
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def give_up(self) -> None:
        """See `Collective`."""
        self.abort("this learner gave up")
        self.close()

    def close(self) -> None:
        """See `Collective`."""
        if self._door is not None:
            self._door.socket.close()
        for end in self._ends.values():
            end.close()
        for each in self._sockets.values():
            each.close()

    def _sum(self, values: Array) -> Array:
        self._limit_waits()
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
            raise self._lost(rank, error) from error

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
            raise self._lost(rank, error) from error

    def _lost(self, rank: int, error: Exception) -> PlugradError:
        if isinstance(error, BlockingIOError):  # the socket's time limit: it stopped in the middle of a piece
            self._check(0.0, rank)
        return gave_up(rank)

    def _has_something(self, rank: int) -> bool:
        try:
            return self._ends[rank].poll(TURN_S)
        except OSError as error:
            raise gave_up(rank) from error
