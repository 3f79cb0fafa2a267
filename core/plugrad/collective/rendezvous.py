"""Make a collective: rank 0 hosts it, all join it, all enter it."""

import logging
import platform
from secrets import token_hex
from typing import Any

from plugrad.collective.base import Address, Collective
from plugrad.collective.shared_memory import SharedMemory, create_shared_file, keeps_store_order
from plugrad.collective.sockets import LOOPBACK, Rank0Reduce, get_own_address, listen

SHARED_MEMORY, SOCKETS = "shared_memory", "sockets"
log = logging.getLogger("plugrad")


def host(kind: str, size: int, name: str | None = None) -> tuple[Address, Any]:
    """Make the place where `size` processes meet: the first step, done by rank 0.

    Args:
        kind: "shared_memory" for processes of one machine, else "sockets". Where processors do not keep the order of
            stores, processes of one machine get sockets on the loopback interface instead.
        size: number of processes.
        name: of the shared file, which exists until all have entered; default: a random one.

    Returns:
        `(address, hosted)`: the address for all, and what this process passes to `join` as `hosted`.

    Raises:
        CollectiveError: there is no memory to share.
    """
    machine = platform.machine()
    if kind == SHARED_MEMORY and keeps_store_order(machine):
        return Address(kind, create_shared_file(size, name or token_hex(8)), size), None
    if kind == SHARED_MEMORY:
        log.warning(
            "the learners exchange gradients over sockets, which is slower: sharing memory is safe on x86 only, "
            "and this machine is %s",
            machine or "unknown",
        )
    listener = listen(size, LOOPBACK if kind == SHARED_MEMORY else get_own_address())
    return Address(SOCKETS, listener.address, size, listener.key), listener


def join(address: Address, rank: int, timeout_s: float, hosted: Any = None) -> Collective:
    """This process's end of the collective at an address; all processes then `enter()` it.

    Args:
        address: from `host`.
        rank: of this process.
        timeout_s: `Collective.timeout_s`.
        hosted: in the process that called `host`, the second value that it returned.

    Returns:
        The collective, not connected yet.

    Raises:
        CollectiveError: there is nothing at the address.
    """
    ends: dict[str, Any] = {SHARED_MEMORY: SharedMemory, SOCKETS: Rank0Reduce}
    collective: Collective = ends[address.kind](address, rank, hosted)
    collective.timeout_s = timeout_s
    return collective
