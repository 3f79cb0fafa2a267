"""How processes come together: one hosts, all join, all enter."""

from secrets import token_hex
from typing import Any

from plugrad.collective.protocol import Address, Collective
from plugrad.collective.shared_memory import SharedMemory, make_file
from plugrad.collective.sockets import Star, listen

SHARED_MEMORY, SOCKETS = "shared_memory", "sockets"


def host(kind: str, size: int, name: str | None = None) -> tuple[Address, Any]:
    """Make the place where `size` processes meet: the first step, in the process of rank 0.

    Args:
        kind: "shared_memory" for processes of one machine, else "sockets".
        size: how many processes.
        name: of the file that is shared until all have entered; default: a random one.

    Returns:
        The address for the others, and what this process gives to `join` as `hosted`.

    Raises:
        CollectiveError: there is no memory to share.
    """
    if kind == SHARED_MEMORY:
        return Address(kind, make_file(size, name or token_hex(8)), size), None
    door = listen(size)
    return Address(kind, door.address, size, door.key), door


def join(address: Address, rank: int, timeout_s: float, hosted: Any = None) -> Collective:
    """This process's end of the collective at an address; all then `enter()` it.

    Raises:
        CollectiveError: there is nothing at the address.
    """
    ends: dict[str, Any] = {SHARED_MEMORY: SharedMemory, SOCKETS: Star}
    collective: Collective = ends[address.kind](address, rank, hosted)
    collective.timeout_s = timeout_s
    return collective
