"""A collective over sockets, for processes on several machines: all send to rank 0, which adds up and sends back.

Raw bytes are sent in the frames of `multiprocessing.connection`; nothing is pickled. Only processes with the key are
accepted (`handshake`). Waiting is polling, so that aborts are noticed; a process that stops in the middle of a piece is
noticed after `timeout_s`.
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

from plugrad.collective.base import Address, Collective, left_error
from plugrad.collective.handshake import POLL_S, Host, connect
from plugrad.errors import CollectiveError, PlugradError
from plugrad.types import Array

LOOPBACK = "127.0.0.1"
PIECE_BYTES = 1 << 20
BACKLOG = 64
"""Length of the queue of connections beside the group's own, so that other callers do not keep these out."""


@dataclass(frozen=True)
class Listener:
    """The listening socket of rank 0.

    Args:
        socket: bound and listening.
        key: secret of the group.
    """

    socket: socket.socket
    key: bytes

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.socket.getsockname()
        return host, port


def listen(size: int, host: str) -> Listener:
    """Listen on a free port, for processes that have a new key.

    Args:
        size: number of processes of the group.
        host: an address of this machine.

    Returns:
        The socket and the key.
    """
    return Listener(socket.create_server((host, 0), backlog=size + BACKLOG), secrets.token_bytes(32))


def get_own_address() -> str:
    """The address of this machine for other machines: PLUGRAD_HOST, else that of the default route."""
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
    """A collective in which rank 0 receives, adds up and sends back; see the module."""

    def __init__(self, address: Address, rank: int, hosted: Any) -> None:
        super().__init__(rank, address.size)
        self._address = address
        self._listener: Listener | None = hosted
        self._sockets: dict[int, socket.socket] = {}
        self._connections: dict[int, Connection] = {}
        self._socket_timeout_s = 0.0

    def enter(self) -> None:
        """See `Collective`."""
        deadline = self._deadline()
        if self._listener is None:
            place, key, check = self._address.place, self._address.key, partial(self._check, deadline, 0)
            self._sockets = {0: connect(tuple(place), key, self.rank, self.timeout_s, check)}
        else:
            host = Host(self._listener.socket, self._listener.key)
            self._sockets = host.accept(set(range(1, self.size)), partial(self._check, deadline))
        for rank, each in self._sockets.items():
            each.setblocking(True)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[rank] = Connection(os.dup(each.fileno()))
        self.barrier()

    def _set_socket_timeouts(self) -> None:
        """Limit each read and write of a piece to `timeout_s`."""
        if self._socket_timeout_s == self.timeout_s:
            return
        self._socket_timeout_s = self.timeout_s
        seconds, rest = divmod(self.timeout_s, 1)
        limit = struct.pack("ll", int(seconds), int(1e6 * rest))
        for each in self._sockets.values():
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def leave(self) -> None:
        """See `Collective`."""
        self.abort("this learner left the exchange")
        self.close()

    def close(self) -> None:
        """See `Collective`."""
        if self._listener is not None:
            self._listener.socket.close()
        for end in self._connections.values():
            end.close()
        for each in self._sockets.values():
            each.close()

    def _sum(self, values: Array) -> Array:
        self._set_socket_timeouts()
        flat = values.reshape(-1)
        if self.rank:
            self._send(0, flat)
            return self._receive(0, flat).reshape(values.shape)
        total = flat.copy()
        for rank in self._connections:
            total += self._receive(rank, flat)
        for rank in self._connections:
            self._send(rank, total)
        return total.reshape(values.shape)

    def _send(self, rank: int, flat: Array) -> None:
        try:
            self._connections[rank].send_bytes(struct.pack("!q", flat.nbytes))
            raw = flat.view(np.uint8)
            for start in range(0, raw.size, PIECE_BYTES):
                self._connections[rank].send_bytes(raw[start : start + PIECE_BYTES].data)
        except OSError as error:
            raise self._to_plugrad_error(rank, error) from error

    def _receive(self, rank: int, like: Array) -> Array:
        found = np.empty_like(like)
        (size,) = struct.unpack("!q", self._receive_piece(rank))
        if size != like.nbytes:
            raise CollectiveError(
                f"learner {rank} brought {size} bytes to the exchange, learner {self.rank} {like.nbytes}: "
                "they do not compute the same thing",
                rank=rank,
            )
        raw = found.view(np.uint8)
        for start in range(0, raw.size, PIECE_BYTES):
            raw[start : start + PIECE_BYTES] = np.frombuffer(self._receive_piece(rank), np.uint8)
        return found

    def _receive_piece(self, rank: int) -> bytes:
        deadline = self._deadline()
        while not self._poll(rank):
            self._check(deadline, rank)
        try:
            return self._connections[rank].recv_bytes(PIECE_BYTES)
        except (OSError, EOFError) as error:
            raise self._to_plugrad_error(rank, error) from error

    def _to_plugrad_error(self, rank: int, error: Exception) -> PlugradError:
        if isinstance(error, BlockingIOError):  # the socket's time limit: it stopped in the middle of a piece
            self._check(0.0, rank)
        return left_error(rank)

    def _poll(self, rank: int) -> bool:
        try:
            return self._connections[rank].poll(POLL_S)
        except OSError as error:
            raise left_error(rank) from error
