"""Callers that belong to no group: they find the ports on which a process listens, and call."""

import os
import socket
import struct
from pathlib import Path

import numpy as np

WORDS = (b"", b"GET / HTTP/1.1\r\n\r\n", np.random.default_rng(0).bytes(1000))
"""What a stranger says: nothing, something of another protocol, noise."""
_IS_LISTENING = "0A"


def listening(pid: int) -> list[tuple[str, int]]:
    """Addresses and ports on which a process listens, from /proc."""
    found = {}
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _IS_LISTENING:
                address, _, port = local.partition(":")
                found[inode] = (_readable(address, family), int(port, 16))
    links = []
    for file in os.listdir(f"/proc/{pid}/fd"):
        links.append(os.readlink(f"/proc/{pid}/fd/{file}"))
    return [found[link[8:-1]] for link in links if link.startswith("socket:[") and link[8:-1] in found]


def visit(pid: int) -> list[socket.socket]:
    """Scan each port of a process, then call it and say nothing, another protocol's words, and noise.

    Args:
        pid: of the process.

    Returns:
        The connections, open: who said nothing is still there.
    """
    sockets = []
    for place in listening(pid):
        socket.create_connection(place, timeout=5).close()
        for words in WORDS:
            sockets.append(socket.create_connection(place, timeout=5))
            sockets[-1].sendall(words)
    return sockets


def _readable(address: str, family: socket.AddressFamily) -> str:
    """An address of /proc: words of 32 bits in the machine's order. One of all interfaces is that of this machine."""
    words = [struct.pack("=I", int(address[n : n + 8], 16)) for n in range(0, len(address), 8)]
    packed = b"".join(words)
    if not any(packed):
        return "127.0.0.1" if family is socket.AF_INET else "::1"
    return socket.inet_ntop(family, packed)
