"""A copy of plugrad with one more op, which is written where CONTRIBUTING.md says, and nowhere else."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

DECLARED = '''
    @Rule(FLOAT)
    def cube(self, x: Tensor) -> Tensor:
        """`x ** 3`."""

    # Reductions over'''
WRITTEN = "\n\ndef cube(x):\n    return x * x * x\n"
CONFTEST = """
import pytest
pytest_plugins = ["plugrad.testing.fixtures"]
@pytest.fixture(scope="session")
def backend():
    return {backend!r}
"""


class CopyWithCube:
    """plugrad, perhaps with one of its backends, and the op `cube`.

    Args:
        folder: an empty one.
        backend: an installed one of ours; None: numpy and strict alone.
    """

    def __init__(self, folder: Path, backend: str | None = None) -> None:
        self.folder = folder
        for package in ("plugrad", *([f"plugrad_{backend}"] if backend else [])):
            shutil.copytree(
                Path(find_spec(package).origin).parent,
                folder / package,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        declarations = folder / "plugrad/ops.py"
        before = declarations.read_text()
        declarations.write_text(before.replace("\n    # Reductions over", DECLARED))
        assert declarations.read_text() != before
        for written in ("plugrad/numpy_ops.py", *([f"plugrad_{backend}/ops.py"] if backend else [])):
            with (folder / written).open("a") as file:
                file.write(WRITTEN)

    def run(self, *arguments: str) -> str:
        """What Python prints that finds the copy first; it must succeed."""
        paths = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        found = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    def prove(self, backend: str) -> str:
        """What the backend suite prints of the op on a backend."""
        tests = self.folder / "tests"
        tests.mkdir()
        (tests / "pytest.ini").write_text("[pytest]\n")
        (tests / "conftest.py").write_text(CONFTEST.format(backend=backend))
        (tests / "test_backend.py").write_text("from plugrad.testing.backend_suite import *\n")
        return self.run("-m", "pytest", "-c", "tests/pytest.ini", "-v", "tests", "-k", "cube")
