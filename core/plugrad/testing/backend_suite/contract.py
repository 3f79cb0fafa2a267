"""Is everything there? First, because all else fails in stranger ways if a hook or an op is missing."""

import inspect
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.manager import BACKEND_SPECIFICATIONS, implementations, specifications
from plugrad.hooks.registry import load_backend
from plugrad.learner.learner import CORE
from plugrad.ops import Ops
from plugrad.testing.fixtures import requires
from plugrad.testing.tiny_learners import tiny_learner

_WITH_DEFAULT = {hook for plugin in CORE for hook in implementations(plugin)}
REQUIRED = [hook for hook in specifications(BACKEND_SPECIFICATIONS) if hook not in _WITH_DEFAULT]
DECLARED = {Capability.FUSED_STEP: "apply_gradients", Capability.FRAMEWORK_OPTIMIZERS: "wrap_optimizer"}
"""Hooks that the core answers too: who declares this capability has an answer of its own."""
OPS = {name: function for name, function in vars(Ops).items() if not name.startswith("_")}


@pytest.mark.parametrize("hook", REQUIRED)
def test_backend_answers_every_hook_that_has_no_default(backend: str, hook: str) -> None:
    """Each hook of a backend that the core does not answer itself is answered."""
    missing = f"backend {backend!r} does not answer the hook {hook!r}: see docs/hooks.md"
    assert hook in implementations(load_backend(backend)), missing


@pytest.mark.parametrize("capability", DECLARED)
def test_backend_answers_what_it_declares(
    backend: str, backend_info: BackendInfo, capability: Capability
) -> None:
    """A capability that means a hook comes with that hook."""
    requires(backend_info, capability)
    hook = DECLARED[capability]
    missing = f"backend {backend!r} declares {str(capability)!r} and does not answer the hook {hook!r}"
    assert hook in implementations(load_backend(backend)), missing


def test_backend_info_is_that_of_the_entry_point(backend: str, backend_info: BackendInfo) -> None:
    """Name, version and devices are there, and a learner runs on the first device."""
    assert backend_info.name == backend, (
        f"backend_info() says {backend_info.name!r}, the entry point {backend!r}"
    )
    assert backend_info.version
    assert backend_info.devices, f"backend {backend!r} names no device: at least ('cpu',)"
    assert tiny_learner(backend).device == backend_info.devices[0]


@pytest.mark.parametrize("op", OPS)
def test_backend_has_every_op_with_the_arguments_of_the_protocol(backend: str, op: str) -> None:
    """Neutral code may call any function of `Ops`, with arguments by position or by name."""
    expected, ops = _arguments(OPS[op]), _namespace(backend)
    assert hasattr(ops, op), f"backend {backend!r} has no op {op!r}: its arguments are {expected}"
    found = _arguments(getattr(ops, op))
    assert found == expected, (
        f"op {op!r} of backend {backend!r}: its arguments must be {expected}, found {found}"
    )


@cache
def _namespace(backend: str) -> Ops:
    """What the hook `ops` gives, asked as at build but of no learner: with an op missing none might be built."""
    implementation = load_backend(backend).implementation
    learner = SimpleNamespace(device=implementation.backend_info().devices[0])
    hook = implementations(load_backend(backend))["ops"]
    wanted = inspect.signature(hook).parameters
    namespace: Ops = hook(learner) if wanted else hook()
    return namespace


def _arguments(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.default) for each in parameters if each.name != "self"]


__all__ = [name for name in dir() if name.startswith("test_")]
