"""How processes come together: one hosts, all join, all enter."""

import logging
import platform
from secrets import token_hex
from typing import Any

from plugrad.collective.protocol import Address, Collective
from plugrad.collective.shared_memory import SharedMemory, keeps_order, make_file
from plugrad.collective.sockets import LOOPBACK, Rank0Reduce, listen, own_address

SHARED_MEMORY, SOCKETS = "shared_memory", "sockets"
log = logging.getLogger("plugrad")


def host(kind: str, size: int, name: str | None = None) -> tuple[Address, Any]:
    """Make the place where `size` processes meet: the first step, in the process of rank 0.

    Args:
        kind: "shared_memory" for processes of one machine, else "sockets". Where processors do not keep the order of
            stores, processes of one machine get sockets on the loopback interface instead.
        size: how many processes.
        name: of the file that is shared until all have entered; default: a random one.

    Returns:
        The address for the others, and what this process gives to `join` as `hosted`.

    Raises:
        CollectiveError: there is no memory to share.
    """
    machine = platform.machine()
    if kind == SHARED_MEMORY and keeps_order(machine):
        return Address(kind, make_file(size, name or token_hex(8)), size), None
    if kind == SHARED_MEMORY:
        log.warning(
            "the learners exchange gradients over sockets, which is slower: sharing memory is safe on x86 only, "
            "and this machine is %s",
            machine or "unknown",
        )
    door = listen(size, LOOPBACK if kind == SHARED_MEMORY else own_address())
    return Address(SOCKETS, door.address, size, door.key), door


def join(address: Address, rank: int, timeout_s: float, hosted: Any = None) -> Collective:
    """This process's end of the collective at an address; all then `enter()` it.

    Raises:
        CollectiveError: there is nothing at the address.
    """
    ends: dict[str, Any] = {SHARED_MEMORY: SharedMemory, SOCKETS: Rank0Reduce}
    collective: Collective = ends[address.kind](address, rank, hosted)
    collective.timeout_s = timeout_s
    return collective
