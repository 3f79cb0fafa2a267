"""One Ray and a few groups for all tests here; nothing of them may stay behind."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from groups import Groups

from plugrad import LearnerGroup

# An environment for one framework alone has no Ray; the one for all says that it must be there.
if find_spec("ray") is None and not os.environ.get("PLUGRAD_TEST_RAY"):
    collect_ignore_glob = ["test_*.py"]


def leftovers() -> list[str]:
    """Ray's processes below this one, and memory of ours."""
    table = subprocess.run(["ps", "-eo", "ppid=,args="], capture_output=True, text=True, check=True).stdout
    mine = [line for line in table.splitlines() if line.split()[0] == str(os.getpid())]
    memory = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return [line for line in mine if "/ray/" in line] + [
        name for name in memory if name.startswith("plugrad-")
    ]


@pytest.fixture(scope="session", autouse=True)
def rays_files() -> Iterator[None]:
    """A folder for the files of every Ray of these tests; its name is short because sockets lie in it."""
    with (
        tempfile.TemporaryDirectory(prefix="plugrad-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("RAY_TMPDIR", folder)
        yield


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
    assert leftovers() == []


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
