"""What a test needs and its environment may lack: a backend that nobody asked for, an extra that is not installed.

Write `needs.backend("torch")` or `needs.extra("minari")`, never `pytest.importorskip`: that one also skips what is
installed and broken. Which reasons may skip a test is said in skips.py.
"""

import os
import shutil
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

FRAMEWORKS = {"torch": "torch", "tf2": "tensorflow", "jax": "jax"}
NO_BACKEND = "PLUGRAD_TEST_BACKENDS does not ask for "
NO_EXTRA = "not installed: "
NO_MACHINES = "no two machines: "
NO_ROOT = "not root: "
NO_LAUNCHER = "no launcher: "
NO_GPU = "torch sees fewer GPUs than "
NO_GPU_OF_JAX = "jax sees no GPU"
STAND_IN_OF_TORCH = "_setup_privateuseone_for_python_backend"
NO_STAND_IN = "torch takes no device that is written in Python: "


def backends_under_test() -> list[str]:
    """Those in PLUGRAD_TEST_BACKENDS ("torch,jax"), even if missing; without it, the installed ones."""
    requested = os.environ.get("PLUGRAD_TEST_BACKENDS")
    if requested is not None:
        return requested.replace(",", " ").split()
    return [backend for backend, framework in FRAMEWORKS.items() if find_spec(framework)]


def backends(*names: str) -> pytest.MarkDecorator:
    """A mark for tests that need all of these backends."""
    missing = [name for name in names if name not in backends_under_test()]
    return pytest.mark.skipif(bool(missing), reason=NO_BACKEND + ", ".join(missing))


def backend(name: str) -> Any:
    """The framework of a backend that is under test; else the running test is skipped.

    Raises:
        ImportError: the backend is under test and its framework does not import.
    """
    if name not in backends_under_test():
        pytest.skip(NO_BACKEND + name)
    return import_module(FRAMEWORKS[name])


def extra(module: str) -> ModuleType:
    """A module of an extra; the running test, or file, is skipped if that is not installed.

    With PLUGRAD_TEST_EXTRAS=1 every extra must be there, with PLUGRAD_TEST_EXTRAS="PIL ale_py" these modules.

    Raises:
        ImportError: it is installed, or must be there, and does not import.
    """
    top, demanded = module.partition(".")[0], os.environ.get("PLUGRAD_TEST_EXTRAS", "").split()
    if find_spec(top) is None and "1" not in demanded and top not in demanded:
        pytest.skip(NO_EXTRA + module, allow_module_level=True)
    return import_module(module)


def root() -> None:
    """Skip the running test where this process may make no device nodes and no files of other users."""
    if os.geteuid() != 0:
        pytest.skip(NO_ROOT + "no device nodes, and no files of other users")


def launcher(*commands: str) -> None:
    """Skip the running test where one of these commands is missing, which start processes on a cluster."""
    if missing := [each for each in commands if shutil.which(each) is None]:
        pytest.skip(NO_LAUNCHER + ", ".join(missing))


def gpus(number: int) -> None:
    """Skip the running test where torch sees fewer GPUs."""
    if backend("torch").cuda.device_count() < number:
        pytest.skip(f"{NO_GPU}{number}")


def stand_in_of_torch() -> None:
    """Skip the running test where torch cannot be given a device of the tests' own."""
    if not hasattr(import_module("torch.utils.backend_registration"), STAND_IN_OF_TORCH):
        pytest.skip(NO_STAND_IN + STAND_IN_OF_TORCH + " is missing")
