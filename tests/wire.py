"""Carries packets between two network namespaces, as a wire that can be slow, cut, or break connections.

`python wire.py NAMESPACE NAMESPACE SOCKET`: makes a TUN device `wire0` in each and prints "ready". Commands are JSON
datagrams to the Unix socket: {"delay_s": 0.01}, {"bytes_per_s": 1e7}, {"is_cut": true}, {"resets": 1}.
"""

import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
MTU = 9000
FIRST_EPHEMERAL = 32768
"""Ports from here on are nobody's own: only connections between two of them are broken, so none of Ray's."""
TCP, RST_ACK = 6, 0x14


def open_device(namespace: str) -> int:
    """A new device `wire0` in a namespace; this process stays in its own."""
    with open("/proc/self/ns/net") as own:
        _enter(f"/run/netns/{namespace}")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"wire0", IFF_TUN | IFF_NO_PI))
        _enter(f"/proc/self/fd/{own.fileno()}")
    return device


def _enter(path: str) -> None:
    with open(path) as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {path}")


class Wire:
    """Packets on their way.

    Args:
        devices: the two ends.
    """

    def __init__(self, devices: tuple[int, int]) -> None:
        self.delay_s = 0.0
        self.bytes_per_s = float("inf")
        self.is_cut = False
        self.resets = 0
        self._to = {devices[0]: devices[1], devices[1]: devices[0]}
        self._free_at = dict.fromkeys(devices, 0.0)
        self._on_the_way: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def take(self, device: int) -> None:
        """Read what waits at one end."""
        try:
            packet = os.read(device, MTU + 100)
        except OSError:  # nothing any more, or the device is down
            return
        if self.is_cut:
            return
        if self.resets and (broken := reset_of(packet)):
            self.resets -= 1
            packet = broken
        now = time.monotonic()
        self._free_at[device] = max(now, self._free_at[device]) + len(packet) / self.bytes_per_s
        self._count += 1
        heappush(
            self._on_the_way, (self._free_at[device] + self.delay_s, self._count, self._to[device], packet)
        )

    def deliver(self) -> float | None:
        """Hand over what has arrived; returns the seconds until the next packet does."""
        while self._on_the_way:
            wait = self._on_the_way[0][0] - time.monotonic()
            if wait > 0:
                return wait
            *_, device, packet = heappop(self._on_the_way)
            if not self.is_cut:
                with suppress(OSError):  # the other end is down
                    os.write(device, packet)
        return None


def reset_of(packet: bytes) -> bytes | None:
    """The packet that resets the connection of a packet with data in it; None for any other packet."""
    header = (packet[0] & 15) * 4
    if packet[0] >> 4 != 4 or packet[9] != TCP:
        return None
    source, target, sequence, acknowledged = struct.unpack_from("!HHII", packet, header)
    data = len(packet) - header - (packet[header + 12] >> 4) * 4
    if not data or min(source, target) < FIRST_EPHEMERAL:
        return None
    ip = struct.pack("!BBHHHBBH8s", 0x45, 0, 40, 0, 0, 64, TCP, 0, packet[12:20])
    tcp = struct.pack("!HHIIBBHHH", source, target, sequence, acknowledged, 5 << 4, RST_ACK, 0, 0, 0)
    pseudo = packet[12:20] + struct.pack("!BBH", 0, TCP, 20)
    return with_sum(ip, ip, 10) + with_sum(tcp, pseudo + tcp, 16)


def with_sum(header: bytes, over: bytes, offset: int) -> bytes:
    """A header with the internet checksum (RFC 1071) of some bytes at an offset."""
    total = sum(struct.unpack(f"!{len(over) // 2}H", over))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return header[:offset] + struct.pack("!H", ~total & 0xFFFF) + header[offset + 2 :]


def main(first: str, second: str, path: str) -> None:
    """Carry packets until this process is killed."""
    commands = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    commands.bind(path)
    devices = open_device(first), open_device(second)
    wire = Wire(devices)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([*devices, commands], [], [], wire.deliver())
        for each in ready:
            if each is commands:
                setting: dict[str, Any] = json.loads(commands.recv(1000))
                vars(wire).update(setting)
            else:
                wire.take(each)


if __name__ == "__main__":
    main(*sys.argv[1:])
