"""What all tests share: the backends they run on, and hypothesis with fixed seeds.

A framework is imported by the tests that run on it, never here: tests/core runs without any.
"""

import gc
import os
import signal
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from needs import backends_under_test

from plugrad.types import Array, Tensor

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A suite that a script starts in the background inherits an ignored Ctrl-C; so would what the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["plugrad.testing.fixtures", "samples", "skips", "run_report", "tests_of", "stand_ins"]

collect_ignore_glob = ["author/plugrad-*"]  # a stranger's tests: author/test_stranger.py runs them

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # above it, TensorFlow keeps no compiled programs
os.environ.setdefault(
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0"
)  # else JAX keeps those of a second or more
settings.register_profile("plugrad", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("plugrad")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m smoke` no file is imported that has no such test: importing them all takes longer than these tests."""
    if config.option.markexpr != "smoke" or not collection_path.name.startswith("test_"):
        return None
    return "mark.smoke" not in collection_path.read_text() or None


def pytest_collection_finish() -> None:
    """Let no collection of garbage visit what is there till the end: the strict backend collects at each program."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor what a file leaves behind, such as imported frameworks and their caches."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """What one test compiles, another loads, also of another process; nothing comes from an earlier run."""
    if hasattr(config, "workerinput"):  # the folder is its parent's
        return
    folder = TemporaryDirectory(prefix="plugrad-tests-", ignore_cleanup_errors=True)
    os.environ["XDG_CACHE_HOME"] = folder.name
    os.environ["PLUGRAD_TEST_HEADERS"] = folder.name  # of tests/quick_g++
    config.add_cleanup(folder.cleanup)


@pytest.fixture(scope="session", params=backends_under_test())
def backend(request: pytest.FixtureRequest) -> str:
    """The short name of a backend; a test that asks for it runs once per backend."""
    name: str = request.param
    return name


Gradients = Callable[[Callable[..., Tensor], Sequence[Tensor]], list[Tensor]]


@pytest.fixture(scope="session")
def gradients(backend: str) -> Gradients:
    """`gradients(f, tensors)`: those of the scalar `f(*tensors)` with respect to the float ones."""
    return {"torch": _torch_gradients, "tf2": _tf2_gradients, "jax": _jax_gradients}[backend]


def _torch_gradients(f: Callable[..., Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    import torch

    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in tensors]
    floats = [x for x in leaves if x.requires_grad]
    found = torch.autograd.grad(f(*leaves), floats, materialize_grads=True)
    return [x.detach() for x in found]  # zeros in place of none want gradients in torch 2.8


def _tf2_gradients(f: Callable[..., Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    import tensorflow as tf

    floats = [x for x in tensors if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        value = f(*tensors)
    found = tape.gradient(value, floats, unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in found]


def _jax_gradients(f: Callable[..., Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    import jax
    import jax.numpy as jnp

    floats = [n for n, x in enumerate(tensors) if jnp.issubdtype(x.dtype, jnp.floating)]
    return list(jax.grad(f, floats)(*tensors))


Trace = Callable[[Callable[..., list[Tensor]], Sequence[Array]], list[Array]]


@pytest.fixture(scope="session")
def trace(backend: str) -> Trace:
    """`trace(f, arrays)`: the results of `f(*tensors)` as one program: torch's make_fx, XLA of the others."""
    return {"torch": _torch_trace, "tf2": _tf2_trace, "jax": _jax_trace}[backend]


def _torch_trace(f: Callable[..., list[Tensor]], arrays: Sequence[Array]) -> list[Array]:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    tensors = [torch.tensor(x) for x in arrays]
    return [x.detach().numpy() for x in make_fx(f, tracing_mode="fake")(*tensors)(*tensors)]


def _tf2_trace(f: Callable[..., list[Tensor]], arrays: Sequence[Array]) -> list[Array]:
    import tensorflow as tf

    tensors = [tf.constant(x) for x in arrays]
    return [np.asarray(x) for x in tf.function(f, jit_compile=True, autograph=False)(*tensors)]


def _jax_trace(f: Callable[..., list[Tensor]], arrays: Sequence[Array]) -> list[Array]:
    import jax

    return [np.asarray(x) for x in jax.jit(f)(*map(np.asarray, arrays))]


@pytest.fixture
def native_optimizer(backend: str) -> Callable[[Sequence[Tensor], float], Any]:
    """For the backend suite: what the backend itself is certified with."""
    found: Callable[[Sequence[Tensor], float], Any] = import_module(
        f"plugrad_{backend}.testing"
    ).gradient_descent
    return found


@pytest.fixture
def user_model(backend: str) -> Callable[[], Any]:
    """For the backend suite: a model with BatchNorm and Dropout."""

    def make() -> Any:
        from statistics_models import normed

        return normed(backend)

    return make
