"""Mutual authentication of the sockets of one group by a shared key; other callers are rejected and delay nobody.

    host   -> caller: 32 random bytes
    caller -> host:   its rank, 32 random bytes, HMAC of the host's bytes and both
    host   -> caller: HMAC of the caller's bytes

All messages have a fixed length, so that no length is read from an unauthenticated caller. The HMAC is that of RFC 2104
with SHA-256 and the group's key.
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

POLL_S = 0.05
"""Seconds between two looks whether waiting has to end."""
MAX_UNAUTHENTICATED = 64
"""Callers that may be connected without having proved the key; beyond that the oldest is rejected."""
_RANDOM, _MAC = 32, 32
_RANK = struct.Struct("!Q")
_ANSWER = _RANK.size + _RANDOM + _MAC

Check = Callable[[], None]
"""Raises when waiting has to end."""


@dataclass
class _Caller:
    socket: socket.socket
    challenge: bytes = field(default_factory=lambda: os.urandom(_RANDOM))
    answer: bytes = b""


class Host:
    """Accepts the callers that have the key.

    Args:
        listener: a listening socket.
        key: secret of the group.
    """

    def __init__(self, listener: socket.socket, key: bytes) -> None:
        self._listener = listener
        self._key = key
        self._unauthenticated: list[_Caller] = []

    def accept(self, ranks: set[int], check: Callable[[int], None]) -> dict[int, socket.socket]:
        """Wait for one caller of each rank; others, and a second one of a rank, are rejected.

        Args:
            ranks: to wait for.
            check: called again and again with a rank that is missing; raises when waiting has to end.

        Returns:
            `{rank: socket}` in the order of ranks.
        """
        known: dict[int, socket.socket] = {}
        self._listener.setblocking(False)
        try:
            while missing := sorted(ranks - known.keys()):
                check(missing[0])
                for caller in self._poll():
                    self._receive_answer(caller, ranks, known)
        except BaseException:
            for each in known.values():
                each.close()
            raise
        finally:
            for caller in self._unauthenticated:
                caller.socket.close()
        return dict(sorted(known.items()))

    def _poll(self) -> list[_Caller]:
        """The callers that sent something; new ones are sent their challenge."""
        with DefaultSelector() as selector:
            selector.register(self._listener, EVENT_READ)
            for caller in self._unauthenticated:
                selector.register(caller.socket, EVENT_READ, caller)
            ready = [key.data for key, _ in selector.select(POLL_S)]
        if None in ready:
            with suppress(OSError):  # gone before it was accepted
                self._challenge(self._listener.accept()[0])
        return [caller for caller in ready if caller is not None and caller in self._unauthenticated]

    def _challenge(self, newcomer: socket.socket) -> None:
        newcomer.setblocking(False)
        caller = _Caller(newcomer)
        self._unauthenticated.append(caller)
        if len(self._unauthenticated) > MAX_UNAUTHENTICATED:
            self._reject(self._unauthenticated[0])
        with suppress(OSError):  # a new socket takes 32 bytes; one that is gone is noticed when it is read
            newcomer.send(caller.challenge)

    def _receive_answer(self, caller: _Caller, ranks: set[int], known: dict[int, socket.socket]) -> None:
        try:
            more = caller.socket.recv(_ANSWER - len(caller.answer))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        caller.answer += more
        if more and len(caller.answer) < _ANSWER:
            return
        rank = self._authenticated_rank(caller)
        if rank not in ranks - known.keys():
            self._reject(caller)
            return
        with suppress(OSError):  # one that is gone is noticed at the first exchange
            caller.socket.send(_mac(self._key, b"host", caller.answer[_RANK.size : -_MAC]))
        self._unauthenticated.remove(caller)
        known[rank] = caller.socket

    def _authenticated_rank(self, caller: _Caller) -> int:
        """The rank in an answer with the right HMAC; -1: it has another."""
        claim, mac = caller.answer[:-_MAC], caller.answer[-_MAC:]
        if len(caller.answer) < _ANSWER or not hmac.compare_digest(
            mac, _mac(self._key, b"caller", caller.challenge + claim)
        ):
            return -1
        rank: int = _RANK.unpack_from(claim)[0]
        return rank

    def _reject(self, caller: _Caller) -> None:
        self._unauthenticated.remove(caller)
        caller.socket.close()


def connect(place: tuple[str, int], key: bytes, rank: int, timeout_s: float, check: Check) -> socket.socket:
    """Connect to the host, and prove the key to each other.

    Args:
        place: host and port.
        key: secret of the group.
        rank: of the caller.
        timeout_s: seconds to try to reach it.
        check: called again and again; raises when waiting has to end.

    Returns:
        The connected socket.

    Raises:
        CollectiveError: the host cannot be reached, rejects this caller, or does not have the key.
    """
    try:
        end = socket.create_connection(place, timeout=timeout_s)
    except OSError as error:
        raise CollectiveError(f"learner 0 cannot be reached at {place}: {error}") from error
    try:
        own = _RANK.pack(rank) + os.urandom(_RANDOM)
        challenge = _receive(end, _RANDOM, check)
        end.sendall(own + _mac(key, b"caller", challenge + own))
        answer = _receive(end, _MAC, check)
        if not hmac.compare_digest(answer, _mac(key, b"host", own[_RANK.size :])):
            raise CollectiveError(f"whoever listens at {place} does not have the key of this group")
    except OSError as error:
        end.close()
        raise CollectiveError(f"learner 0 at {place} closed the connection: {error}") from error
    except BaseException:
        end.close()
        raise
    return end


def _receive(end: socket.socket, size: int, check: Check) -> bytes:
    end.settimeout(POLL_S)
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
