"""How sockets of one group know each other: whoever else connects is sent away, and holds up nobody.

    host   -> caller: 32 random bytes
    caller -> host:   its rank, 32 random bytes, HMAC of the host's bytes and both
    host   -> caller: HMAC of the caller's bytes

All have a fixed length, so that nothing is believed that a stranger says of itself. HMAC is SHA-256 with the group's
key.
"""

import hmac
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from selectors import EVENT_READ, DefaultSelector

from plugrad.errors import CollectiveError

TURN_S = 0.05
"""So often a wait looks whether it has to end."""
MOST_UNKNOWN = 64
"""So many callers that have not proved who they are may be connected; then the oldest is sent away."""
_RANDOM, _MAC = 32, 32
_RANK = struct.Struct("!Q")
_ANSWER = _RANK.size + _RANDOM + _MAC

Check = Callable[[], None]
"""Raises when waiting has to end."""


@dataclass
class _Caller:
    socket: socket.socket
    challenge: bytes = field(default_factory=lambda: os.urandom(_RANDOM))
    said: bytes = b""


class Host:
    """Lets in the callers who have the key.

    Args:
        listener: listens already.
        key: of the group.
    """

    def __init__(self, listener: socket.socket, key: bytes) -> None:
        self._listener = listener
        self._key = key
        self._unknown: list[_Caller] = []

    def accept(self, ranks: set[int], check: Callable[[int], None]) -> dict[int, socket.socket]:
        """One socket for each of these ranks. All other callers, and a second one of a rank, are sent away.

        Args:
            ranks: who is waited for.
            check: called again and again with a rank that is missing; raises when waiting has to end.
        """
        known: dict[int, socket.socket] = {}
        self._listener.setblocking(False)
        try:
            while missing := sorted(ranks - known.keys()):
                check(missing[0])
                for caller in self._ready():
                    self._hear(caller, ranks, known)
        except BaseException:
            for each in known.values():
                each.close()
            raise
        finally:
            for caller in self._unknown:
                caller.socket.close()
        return dict(sorted(known.items()))

    def _ready(self) -> list[_Caller]:
        """Those who said something; newcomers are greeted."""
        with DefaultSelector() as selector:
            selector.register(self._listener, EVENT_READ)
            for caller in self._unknown:
                selector.register(caller.socket, EVENT_READ, caller)
            ready = [key.data for key, _ in selector.select(TURN_S)]
        if None in ready:
            with suppress(OSError):  # gone before it was let in
                self._greet(self._listener.accept()[0])
        return [caller for caller in ready if caller is not None and caller in self._unknown]

    def _greet(self, newcomer: socket.socket) -> None:
        newcomer.setblocking(False)
        caller = _Caller(newcomer)
        self._unknown.append(caller)
        if len(self._unknown) > MOST_UNKNOWN:
            self._send_away(self._unknown[0])
        with suppress(OSError):  # a new socket takes 32 bytes; if it is gone, it is heard to be
            newcomer.send(caller.challenge)

    def _hear(self, caller: _Caller, ranks: set[int], known: dict[int, socket.socket]) -> None:
        try:
            more = caller.socket.recv(_ANSWER - len(caller.said))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        caller.said += more
        if more and len(caller.said) < _ANSWER:
            return
        rank = self._rank_of(caller)
        if rank not in ranks - known.keys():
            self._send_away(caller)
            return
        with suppress(OSError):  # who is gone already is missed at the first exchange
            caller.socket.send(_mac(self._key, b"host", caller.said[_RANK.size : -_MAC]))
        self._unknown.remove(caller)
        known[rank] = caller.socket

    def _rank_of(self, caller: _Caller) -> int:
        """The rank that a caller proved to have; -1: none."""
        claim, mac = caller.said[:-_MAC], caller.said[-_MAC:]
        if len(caller.said) < _ANSWER or not hmac.compare_digest(
            mac, _mac(self._key, b"caller", caller.challenge + claim)
        ):
            return -1
        rank: int = _RANK.unpack_from(claim)[0]
        return rank

    def _send_away(self, caller: _Caller) -> None:
        self._unknown.remove(caller)
        caller.socket.close()


def call(place: tuple[str, int], key: bytes, rank: int, timeout_s: float, check: Check) -> socket.socket:
    """A socket to the host.

    Args:
        place: host and port.
        key: of the group.
        rank: of the caller.
        timeout_s: how long to try to reach it.
        check: called again and again; raises when waiting has to end.

    Raises:
        CollectiveError: it cannot be reached, sends this caller away, or does not have the key.
    """
    try:
        end = socket.create_connection(place, timeout=timeout_s)
    except OSError as error:
        raise CollectiveError(f"learner 0 cannot be reached at {place}: {error}") from error
    try:
        own = _RANK.pack(rank) + os.urandom(_RANDOM)
        challenge = _received(end, _RANDOM, check)
        end.sendall(own + _mac(key, b"caller", challenge + own))
        answer = _received(end, _MAC, check)
        if not hmac.compare_digest(answer, _mac(key, b"host", own[_RANK.size :])):
            raise CollectiveError(f"whoever listens at {place} does not have the key of this group")
    except OSError as error:
        end.close()
        raise CollectiveError(f"learner 0 at {place} closed the connection: {error}") from error
    except BaseException:
        end.close()
        raise
    return end


def _received(end: socket.socket, size: int, check: Check) -> bytes:
    end.settimeout(TURN_S)
    found = b""
    while len(found) < size:
        check()
        with suppress(TimeoutError):
            more = end.recv(size - len(found))
            if not more:
                raise ConnectionResetError("it was closed before the key was proved")
            found += more
    return found


def _mac(key: bytes, who: bytes, what: bytes) -> bytes:
    return hmac.digest(key, who + what, "sha256")
