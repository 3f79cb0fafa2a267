"""How the processes of a torch group find each other without a server: the driver passes on their contacts."""

import os
import socket
from collections.abc import Sequence
from threading import Condition
from typing import Any

from torch._C._distributed_c10d import Store

LOOPBACK = "127.0.0.1"


def get_own_address() -> str:
    """The address of this machine for others: PLUGRAD_HOST, else that of the default route, else 127.0.0.1."""
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
    """The torch store of one process: it takes this process's contact and gives the contacts of all.

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
        """This process's contact; None if torch has not set it within `timeout_s` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._contact is not None or self._is_closed, timeout_s)
            return self._contact

    def enter(self, contacts: Sequence[bytes]) -> None:
        """Set the contacts of all processes, in the order of ranks, for torch to read."""
        with self._changed:
            self._contacts = contacts
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def set(self, key: str, value: Any) -> None:
        """Called by torch.

        Args:
            key: not used.
            value: this process's contact.
        """
        with self._changed:
            self._contact = bytes(value)
            self._changed.notify_all()

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        """Called by torch: wait for `enter`.

        Args:
            keys: not used.
            timeout: not used; `close` ends the wait.

        Raises:
            RuntimeError: `close` was called.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._contacts is not None or self._is_closed)
            if self._is_closed:
                raise RuntimeError("this learner left before all were connected")

    def check(self, keys: list[str]) -> bool:
        """Called by NCCL's watchdog, for keys that no process writes: always False."""
        return False

    def get(self, key: str) -> bytes:
        """Called by torch: the contact of the rank at the end of `key`."""
        self.wait([key])
        assert self._contacts is not None
        return self._contacts[int(key.rpartition("/")[2])]
