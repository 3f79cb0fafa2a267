"""A process that forks workers of Ray, and what launchers start: see tests/quick_imports/forked_workers.py."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import backends_under_test
from waiting import wait_until


@contextmanager
def forked_workers(path: str, environment: pytest.MonkeyPatch) -> Iterator[None]:
    """Where tests compile quickly, processes with learners are forks of one that has imported the backends.

    Args:
        path: of its socket, short.
        environment: where processes find it.
    """
    program = find_spec("forked_workers")
    if program is None or program.origin is None:
        yield
        return
    environment.setenv("PLUGRAD_TEST_WORKERS", path)
    modules = [f"plugrad_{name}.backend" for name in backends_under_test()]
    command = [sys.executable, program.origin, path, *modules, "plugrad_ppo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as server:
        try:
            wait_until(
                lambda: Path(path).exists() or server.poll() is not None, "a process that forks workers"
            )
            yield
        finally:
            server.communicate()
