"""Is everything there? First, because all else fails in stranger ways if a hook or an op is missing."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.manager import BACKEND_SPECIFICATIONS, implementations, specifications
from plugrad.hooks.registry import load_backend
from plugrad.learner.learner import CORE
from plugrad.ops import Ops, Shape
from plugrad.testing.fixtures import requires
from plugrad.testing.tiny_learners import tiny_learner

_WITH_DEFAULT = {hook for plugin in CORE for hook in implementations(plugin)}
REQUIRED = [hook for hook in specifications(BACKEND_SPECIFICATIONS) if hook not in _WITH_DEFAULT]
DECLARED = {Capability.FUSED_STEP: "apply_gradients", Capability.FRAMEWORK_OPTIMIZERS: "wrap_optimizer"}
"""Hooks that the core answers too: who declares this capability has an answer of its own."""
OPS = {name: function for name, function in vars(Ops).items() if not name.startswith("_")}
PLAIN = (int, str, Shape, Sequence[int])
"""Types of arguments that are no tensors."""


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
    """Tensors by position, all else by position or by its name in `Ops`, or left out if it has a default there."""
    expected, ops = _parameters(OPS[op]), _namespace(backend)
    words = f"its arguments are ({', '.join(map(str, expected))})"
    assert hasattr(ops, op), f"backend {backend!r} has no op {op!r}: {words}"
    signature = _signature(getattr(ops, op))
    for by_position in range(_num_tensors(expected), len(expected) + 1):
        call = _call(expected, by_position)
        wrong = f"op {op!r} of backend {backend!r} does not take {op}{call}: {words}, found {signature}"
        assert signature is None or _takes(signature, expected, by_position), wrong


@cache
def _namespace(backend: str) -> Ops:
    """What the hook `ops` gives, asked as at build but of no learner: with an op missing none might be built."""
    implementation = load_backend(backend).implementation
    learner = SimpleNamespace(device=implementation.backend_info().devices[0])
    hook = implementations(load_backend(backend))["ops"]
    wanted = inspect.signature(hook).parameters
    namespace: Ops = hook(learner) if wanted else hook()
    return namespace


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())[1:]  # without self


def _num_tensors(parameters: Sequence[inspect.Parameter]) -> int:
    """How many come first whose names are the backend's own: tensors, trees of them, and the function of a scan."""
    others = (n for n, each in enumerate(parameters) if _is_optional(each) or each.annotation in PLAIN)
    return next(others, len(parameters))


def _is_optional(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """None where Python does not know it, as of some functions in C: then only calls show what it takes."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def _call(expected: Sequence[inspect.Parameter], by_position: int) -> str:
    first, rest = expected[:by_position], expected[by_position:]
    return f"({', '.join([each.name for each in first] + [f'{each.name}=...' for each in rest])})"


def _takes(signature: inspect.Signature, expected: Sequence[inspect.Parameter], by_position: int) -> bool:
    """Whether such a call is taken, and an argument that is given by position is the one of this name."""
    names = [each.name for each in expected]
    try:
        signature.bind(*(each.name for each in expected if not _is_optional(each)))
        bound = signature.bind(*names[:by_position], **{name: name for name in names[by_position:]})
    except TypeError:
        return False
    own = {each.name for each in expected[_num_tensors(expected) :]} & set(signature.parameters)
    return all(bound.arguments.get(name) == name for name in own)


__all__ = [name for name in dir() if name.startswith("test_")]
