"""How processes of torch's groups find each other without a server: the driver hands their contacts round."""

import os
import socket
from collections.abc import Sequence
from threading import Condition
from typing import Any

from torch._C._distributed_c10d import Store

LOOPBACK = "127.0.0.1"


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


class ContactStore(Store):
    """A store of one process: what is set here is its contact, what is read here are the contacts of all.

    torch writes keys that end with the rank of the writer, such as "0/1" or "0". It calls the store from threads of its
    own, and from the one that makes the process group.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changed = Condition()
        self._contact: bytes | None = None
        self._contacts: Sequence[bytes] | None = None
        self._is_closed = False

    def read_contact(self, timeout_s: float) -> bytes | None:
        """What was set here; waits at most `timeout_s`, then None."""
        with self._changed:
            self._changed.wait_for(lambda: self._contact is not None or self._is_closed, timeout_s)
            return self._contact

    def enter(self, contacts: Sequence[bytes]) -> None:
        """Let readers have the contacts of all processes, in the order of ranks."""
        with self._changed:
            self._contacts = contacts
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def set(self, key: str, value: Any) -> None:
        """Called by torch."""
        with self._changed:
            self._contact = bytes(value)
            self._changed.notify_all()

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        """Called by torch. It ends when the contacts are there, or after `close` with an error, not before."""
        with self._changed:
            self._changed.wait_for(lambda: self._contacts is not None or self._is_closed)
            if self._is_closed:
                raise RuntimeError("this learner left before all were connected")

    def check(self, keys: list[str]) -> bool:
        """Called by NCCL's watchdog, for words of other processes that nobody writes."""
        return False

    def get(self, key: str) -> bytes:
        """Called by torch."""
        self.wait([key])
        assert self._contacts is not None
        return self._contacts[int(key.rpartition("/")[2])]
