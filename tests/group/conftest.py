"""One Ray and a few groups for all tests here; they leave nothing behind."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from glob import glob
from importlib.util import find_spec
from pathlib import Path

import pytest
from groups import Groups
from waiting import wait_until
from worker_forks import forked_workers

from plugrad import LearnerGroup

# An environment for one framework alone has no Ray; the one for all says that it must be there.
if find_spec("ray") is None and not os.environ.get("PLUGRAD_TEST_RAY"):
    collect_ignore_glob = ["test_*.py"]


def leftovers(folder: str) -> list[str]:
    """Processes that hold a file in this folder, as all of Ray's do whoever their parent is now; memory of ours."""
    memory = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return [name for name in memory if name.startswith("plugrad-")] + [
        Path(process, "cmdline").read_text().replace("\0", " ")
        for process in glob("/proc/[0-9]*")
        if any(target.startswith(folder) for target in open_files(process))
    ]


def open_files(process: str) -> Iterator[str]:
    for file in glob(f"{process}/fd/*") if process != f"/proc/{os.getpid()}" else []:
        with suppress(OSError):  # closed, ended or another user's
            yield os.readlink(file)


@pytest.fixture(scope="session", autouse=True)
def rays_files() -> Iterator[None]:
    """A folder for the files of every Ray of these tests; its name is short because sockets lie in it."""
    with (
        tempfile.TemporaryDirectory(prefix="plugrad-") as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("RAY_TMPDIR", folder)
        # Else each Ray looks ten times a second for new files of logs, which nobody reads here.
        environment.setenv("RAY_LOG_MONITOR_MANY_FILES_THRESHOLD", "1")
        environment.setenv("LOG_NAME_UPDATE_INTERVAL_S", "10")
        with forked_workers(os.path.join(folder, "workers"), environment):
            yield
        wait_until(lambda: leftovers(folder) == [], "an end of all processes that use a file of Ray's", 0.1)


@pytest.fixture(scope="session")
def cluster(rays_files: None) -> Iterator[None]:
    """Ray with room for two learners and two env runners; it starts a process for each CPU beforehand."""
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # as in a Ray that plugrad starts
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=100_000_000,
        logging_level="ERROR",
        log_to_driver=False,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def groups(cluster: None) -> Iterator[Groups]:
    """The groups of one file."""
    groups = Groups()
    yield groups
    groups.close()


@pytest.fixture
def pair(groups: Groups, backend: str) -> LearnerGroup:
    """Two learners, in the state that they were built in."""
    return groups.get(backend, 2)
