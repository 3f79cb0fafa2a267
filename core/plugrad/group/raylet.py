"""Whether Ray's process on this node, the raylet, is still there.

The raylet has the store of objects. When it has died, Ray ends a driver that touches the store, by `_exit(1)` and
without a word. So plugrad looks before it puts something there, calls an actor or fetches an answer. The moment between
look and touch remains. Where there is no /proc, nobody looks.
"""

from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from plugrad.errors import LearnerGroupDeadError

AGAIN = "what they learned since the last checkpoint is lost: restore it in a new group or Algorithm"


def put(ray: Any, value: Any) -> Any:
    """`ray.put`. Raises as `check`."""
    check(ray)
    return ray.put(value)


def check(ray: Any) -> None:
    """Return if this node's raylet runs.

    Raises:
        LearnerGroupDeadError: it has died, or Ray was shut down.
    """
    if not ray.is_initialized():
        raise LearnerGroupDeadError(f"Ray was shut down, and its actors with it; {AGAIN}")
    command = _command_of_raylet(ray, ray.get_runtime_context().get_node_id())
    if command is not None and not _runs(*command):
        raise LearnerGroupDeadError(
            f"Ray's process on this node (raylet, pid {command[0].parent.name}) has died, and its actors with it; "
            f"{AGAIN}, after ray.shutdown() if in this process"
        )


@cache
def _command_of_raylet(ray: Any, node_id: str) -> tuple[Path, bytes] | None:
    """The file with the command line of a node's raylet, and what it says; None if it cannot be seen from here."""
    sockets = [node["RayletSocketName"] for node in ray.nodes() if node["NodeID"] == node_id]
    for path in map(Path, glob("/proc/[0-9]*/cmdline") if sockets else []):
        try:
            command = path.read_bytes()
        except OSError:  # ended meanwhile
            continue
        if f"--raylet_socket_name={sockets[0]}".encode() in command.split(b"\0"):
            return path, command
    return None


def _runs(path: Path, command: bytes) -> bool:
    try:
        return path.read_bytes() == command  # that of a zombie is empty
    except OSError:
        return False
