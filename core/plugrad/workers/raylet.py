"""Check that the raylet, Ray's process on this node, is still running.

The raylet holds the object store. When it has died, Ray ends a driver that uses the store, by `_exit(1)` and without a
message. So plugrad checks before it puts an object, calls an actor or gets an answer. A raylet that dies between check
and use is not noticed. Without /proc nothing is checked.
"""

from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from plugrad.errors import LearnerGroupDeadError

RESTORE_HINT = "what they learned since the last checkpoint is lost: restore it in a new group or Algorithm"


def put(ray: Any, value: Any) -> Any:
    """Put an object into Ray's store.

    Args:
        ray: the module.
        value: the object.

    Returns:
        Ray's reference to it.

    Raises:
        LearnerGroupDeadError: as `check`.
    """
    check(ray)
    return ray.put(value)


def check(ray: Any) -> None:
    """Check that this node's raylet is running.

    Raises:
        LearnerGroupDeadError: it has died, or Ray was shut down.
    """
    if not ray.is_initialized():
        raise LearnerGroupDeadError(f"Ray was shut down, and its actors with it; {RESTORE_HINT}")
    command = _find_raylet(ray, ray.get_runtime_context().get_node_id())
    if command is not None and not _is_running(*command):
        raise LearnerGroupDeadError(
            f"Ray's process on this node (raylet, pid {command[0].parent.name}) has died, and its actors with it; "
            f"{RESTORE_HINT}, after ray.shutdown() if in this process"
        )


@cache
def _find_raylet(ray: Any, node_id: str) -> tuple[Path, bytes] | None:
    """The file with the command line of a node's raylet and its content; None if it is not visible from here."""
    sockets = [node["RayletSocketName"] for node in ray.nodes() if node["NodeID"] == node_id]
    for path in map(Path, glob("/proc/[0-9]*/cmdline") if sockets else []):
        try:
            command = path.read_bytes()
        except OSError:  # ended meanwhile
            continue
        if f"--raylet_socket_name={sockets[0]}".encode() in command.split(b"\0"):
            return path, command
    return None


def _is_running(path: Path, command: bytes) -> bool:
    try:
        return path.read_bytes() == command  # that of a zombie is empty
    except OSError:
        return False
