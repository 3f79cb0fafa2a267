"""Devices that stand in for a GPU where there is none: what is found elsewhere, or read back, is a mistake.

torch has a device of its own (`torch_stand_in.py`), jax and tf2 the second of two CPUs: there frameworks copy silently,
so `all_on` looks where arrays, variables and operations are. PLUGRAD_TEST_DEVICE=stand-in builds every learner of a run
of pytest there whose config names no device:

    PLUGRAD_TEST_DEVICE=stand-in PLUGRAD_TEST_BACKENDS=torch pytest tests/backends/test_undo.py
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from needs import backends_under_test

VARIABLE = "PLUGRAD_TEST_DEVICE"
DEVICES = {"torch": "stand_in:0", "tf2": "cpu:1", "jax": "cpu:1"}


def are_asked_for() -> bool:
    """Whether learners of this process are built on the stand-ins."""
    return os.environ.get(VARIABLE, "") == "stand-in"


def pytest_configure() -> None:
    """Make the devices before a framework looks for its own, and "auto" their name."""
    if not are_asked_for():
        return
    for backend in backends_under_test():
        prepare(backend)
    build: Any = import_module("plugrad.learner.learner")
    choose = build.choose_device

    def choose_device(config: Any, info: Any) -> Any:
        return choose(config, info) if config.device != "auto" else DEVICES.get(info.name, info.devices[0])

    build.choose_device = choose_device


def pytest_report_header() -> list[str]:
    """Say where learners are."""
    return [f"learners on stand-in devices: {', '.join(backends_under_test())}"] if are_asked_for() else []


def prepare(backend: str) -> None:
    """Make the stand-in device of a backend in this process, which has not computed with the framework."""
    if backend == "torch":
        import_module("torch_stand_in")
    elif backend == "jax":
        import_module("jax").config.update("jax_num_cpu_devices", 2)
    elif backend == "tf2":
        tf = import_module("tensorflow")
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@contextmanager
def all_on(backend: str) -> Iterator[None]:
    """Fail if what the block makes, and is there at its end, is on another device than the stand-in.

    On torch's device an operation with tensors of the CPU fails by itself.

    Raises:
        AssertionError: arrays, variables, or operations of traced functions are elsewhere.
    """
    gc.collect()
    kept = [each for each, _ in _places(backend)]  # so that no id is given twice
    before = {id(each) for each in kept}
    with _executed(backend) as ran:
        yield
    places = [*ran, *(where for each, where in _places(backend) if id(each) not in before)]
    strays = sorted({where for where in places if where and not where.endswith((_ENDS[backend], *_HOST))})
    assert not strays, f"found off {DEVICES[backend]}: {strays}"


_ENDS = {"torch": "", "tf2": "CPU:1", "jax": "cpu:1"}
"""How the framework's text of the device ends."""
_HOST = ("task:0",)
"""How TensorFlow's text ends for functions of Python in a graph, which run on the host: a group exchanges in one."""


@contextmanager
def _executed(backend: str) -> Iterator[list[str]]:
    """Where TensorFlow's operations ran in the block, those of functions and single ones, by its own notes.

    It notes an operation when it first runs with such arguments. Constants and row numbers may be kept on the host.
    """
    ran: list[str] = []
    if backend != "tf2":
        yield ran
        return
    context = import_module("tensorflow.python.eager.context").context()
    context.ensure_initialized()
    context.enable_run_metadata()
    context.export_run_metadata()  # what ran before: to disable the notes does not end them
    try:
        yield ran
    finally:
        notes = context.export_run_metadata()
        context.disable_run_metadata()
        nodes = [node for graph in notes.partition_graphs for node in graph.node]
        ran += [each.device for each in nodes if each.op[0] != "_" and not each.op.endswith("Const")]


def _places(backend: str) -> list[tuple[Any, str]]:
    """What has a place, and the framework's text of it."""
    if backend == "jax":
        return [(each, str(each.device)) for each in import_module("jax").live_arrays("cpu")]
    if backend == "torch":
        return []
    tf = import_module("tensorflow")
    found = []
    for each in gc.get_objects():
        if isinstance(each, tf.Graph):
            found += [(each, operation.device) for operation in each.get_operations()]
        elif isinstance(each, tf.Variable):
            found.append((each, each.device))
    return found


@pytest.fixture
def placed(backend: str) -> Any:
    """`all_on` of the backend under test."""
    return lambda: all_on(backend)
