"""Ray on this machine: import it, connect to a cluster or start one, and check that it still runs.

Nothing imports Ray before remote learners or runners need it. A Ray that plugrad starts is closed to others: token
authentication unless RAY_AUTH_MODE says otherwise, no dashboard, files for this user only. Its actors have the priority
of this process unless RAY_worker_niceness says otherwise. It ends with this process, or by `ray.shutdown()`.

The raylet, the process of Ray on this node, holds the object store. When it has died, Ray ends a driver that uses the
store, by `_exit(1)` and without a message. So plugrad checks before it puts an object, calls an actor or gets an
answer. A raylet that dies between check and use is not noticed. Without /proc nothing is checked.
"""

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from plugrad.errors import ConfigError, LearnerGroupDeadError, MissingFrameworkError

LEAST_VERSION = (2, 52)
"""Older ones have no token authentication, and a dashboard that a web page can reach (CVE-2025-62593)."""
log = logging.getLogger("plugrad")


_own_addresses: set[str] = set()
"""Addresses of the clusters that were started here."""


def get_ray(what: str) -> Any:
    """The module `ray`, connected to the cluster of RAY_ADDRESS, or to a new one on this machine.

    Args:
        what: the setting that needs it, for the error.

    Raises:
        MissingFrameworkError: Ray is not installed.
        ConfigError: it is too old.
    """
    if "ray" not in sys.modules and not os.environ.get("RAY_ADDRESS"):  # a cluster has a mode of its own
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # read when Ray is imported
    ray = _import_ray(what)
    if ray.is_initialized():
        return ray
    with _keep_sigterm_handler():
        if os.environ.get("RAY_ADDRESS"):
            ray.init(logging_level=logging.WARNING)
            log.info("connected to the Ray cluster at %s", os.environ["RAY_ADDRESS"])
        else:
            _start(ray)
    return ray


def num_cpus_to_reserve(ray: Any, num_cpus: float) -> float:
    """The CPUs that an actor asks Ray for.

    Args:
        ray: the module.
        num_cpus: as configured.

    Returns:
        `num_cpus`; 0 in a Ray that was started here, where there is nobody to share CPUs with.
    """
    return 0 if is_started_here(ray) else num_cpus


def is_started_here(ray: Any) -> bool:
    """Whether the Ray that this process uses was started by `get_ray`, so that it has one node."""
    return ray.get_runtime_context().gcs_address in _own_addresses


def _import_ray(what: str) -> Any:
    try:
        ray = importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise MissingFrameworkError(
            f'{what} needs ray: pip install "plugrad[ray]"', requires="ray"
        ) from error
    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise ConfigError(f'{what}: ray {ray.__version__} is too old: pip install "ray>={least}"')
    return ray


def _start(ray: Any) -> None:
    # Ray's own 15 is a thirtieth of a core beside any busy process, and all learners wait for the one that has it.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with _private_files():
        context = ray.init(address="local", include_dashboard=False, logging_level=logging.ERROR)
    _own_addresses.add(ray.get_runtime_context().gcs_address)
    token = Path.home() / ".ray" / "auth_token"
    if token.is_file() and token.stat().st_uid == os.getuid():
        token.chmod(0o600)  # Ray before us may have made it readable for all
    log.info(
        "started Ray %s at %s, authentication: %s, no dashboard; it ends with this process",
        ray.__version__,
        context.address_info["address"],
        os.environ.get("RAY_AUTH_MODE", "Ray's default"),
    )


@contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Keep the process's own SIGTERM handler, such as that of `plugrad train`: Ray's would end the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if callable(before) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _private_files() -> Iterator[None]:
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


# --- the process of Ray on this node ---


RESTORE_HINT = "what they learned since the last checkpoint is lost: restore it in a new group or Algorithm"


def put(ray: Any, value: Any) -> Any:
    """Put an object into Ray's store.

    Args:
        ray: the module.
        value: the object.

    Returns:
        Ray's reference to it.

    Raises:
        LearnerGroupDeadError: as `check_raylet`.
    """
    check_raylet(ray)
    return ray.put(value)


def check_raylet(ray: Any) -> None:
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
