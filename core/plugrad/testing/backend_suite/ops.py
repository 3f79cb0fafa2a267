"""Hooks, ops and tensors: is everything there, with the values and gradients of numpy, alone and in one program?"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plugrad import numpy_ops
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.manager import BACKEND_SPECIFICATIONS, implementations, specifications
from plugrad.hooks.registry import load_backend
from plugrad.learner.learner import CORE
from plugrad.ops import Ops, Shape
from plugrad.testing.backend_probe import BackendProbe, leaves, weighted_sum
from plugrad.testing.finite_differences import central_differences
from plugrad.testing.fixtures import requires
from plugrad.testing.op_cases import ARRAYS, CASES, EXACT, EXTREMES, KINKS, LOGITS, Case, extremes, inputs
from plugrad.testing.tiny_learners import tiny_learner
from plugrad.types import Array

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


SMOOTH = [case for case in CASES if case.differentiable]
SHAPES = [(1, 1), (3, 4), (4, 2)]
Convert = Callable[[Any], Any]
_EPSILON = float(np.finfo(np.float32).eps)


def _name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=_name)
def test_values_are_those_of_numpy(
    ops: Ops, to_numpy: Convert, backend_info: BackendInfo, case: Case, dtype: str
) -> None:
    """Values, shapes and dtypes of every op, for every kind of argument; float64 where it is declared."""
    if dtype == "float64":
        requires(backend_info, Capability.FLOAT64)
    for seed, (rows, columns) in enumerate(SHAPES):
        given = [_as(dtype, x) for x in inputs(case.kinds, rows, columns, seed)]
        expected = _expected(case, given)
        found = to_numpy(leaves(case.call(ops, *map(ops.asarray, given))))
        for want, got in zip(expected, found, strict=True):
            _check_dtype(case.name, got, want, backend_info)
            assert got.shape == want.shape, f"op {case.name!r}"
            rtol, atol = (1e-11, 1e-12) if dtype == "float64" else (0.0, 0.0)
            if dtype == "float64" or case.op in EXACT:
                _compare(case.name, got, want, rtol, atol)
        if dtype == "float32" and case.op not in EXACT:
            _compare_rounded(case, given, found)


def _expected(case: Case, given: Sequence[Array]) -> list[Array]:
    return [np.asarray(each) for each in leaves(case.call(numpy_ops, *given))]


def _check_dtype(op: str, got: Array, want: Array, info: BackendInfo) -> None:
    """That of numpy; int32 for int64; and float32 for float64 where float64 is not declared."""
    allowed = {str(want.dtype)} | ({"int32"} if want.dtype == np.int64 else set())
    if want.dtype == np.float64 and Capability.FLOAT64 not in info.capabilities:
        allowed |= {"float32"}
    assert str(got.dtype) in allowed, f"op {op!r} gives {got.dtype}, not {want.dtype}"


def _compare_rounded(case: Case, given: Sequence[Array], found: Sequence[Array]) -> None:
    """Compare float32 with the oracle in float64, entry by entry.

    An op that is computed with care is off by a few times what it moves if each argument is rounded once, and by a few
    roundings of its result and of what it computes on the way, which is about as large as the result or 1. Few is 8.
    """
    wide = [_as("float64", x) for x in given]
    nearby = [_expected(case, [_rounded(x, seed) for x in wide]) for seed in range(8)]
    for n, (want, got) in enumerate(zip(_expected(case, wide), found, strict=True)):
        moved = np.max([np.abs(each[n] - want) for each in nearby], axis=0)
        limit = 8.0 * np.maximum(moved, _EPSILON * np.maximum(1.0, np.abs(want)))
        words = f"op {case.name!r} is not that of numpy: found {got}, expected {want} within {limit}"
        assert np.all(np.abs(got - want) <= limit), words


def _rounded(array: Array, seed: int) -> Array:
    """Each entry of a float array up or down by one rounding of float32."""
    if array.dtype.kind != "f":
        return array
    return np.asarray(array * (1.0 + _EPSILON * np.random.default_rng(seed).choice([-1, 1], array.shape)))


def _as(dtype: str, array: Array) -> Array:
    return array.astype(dtype) if array.dtype.kind == "f" else array


def _compare(what: str, got: Array, want: Array, rtol: float, atol: float) -> None:
    np.testing.assert_allclose(got, want, rtol, atol, err_msg=f"op {what!r} is not that of numpy")


@pytest.mark.parametrize("case", SMOOTH, ids=_name)
def test_gradients_are_the_finite_differences_of_numpy(backend: str, case: Case) -> None:
    """What `differentiate` says of every op is the slope of the oracle, within 1e-5 of the largest."""
    given = [_as("float32", x) for x in inputs(case.kinds, 3, 4, 7)]
    found = BackendProbe.of(backend, case.call, given).gradients()
    for want, got in zip(_slopes(case, given), found, strict=True):
        scale = 1e-5 * max(1.0, float(np.abs(want).max()))
        _compare(f"{case.name}, its gradient", got, want, 0.0, scale)


def _slopes(case: Case, given: Sequence[Array]) -> list[Array]:
    """Of the oracle, in float64; `stop_gradient` is what the op says, so its argument does not move."""
    wide = [_as("float64", x) for x in given]
    slopes = []
    for n, array in enumerate(wide):
        if array.dtype.kind == "f":

            def value(flat: Array, n: int = n, shape: Any = array.shape) -> Array:
                moved = [*wide[:n], flat.reshape(shape), *wide[n + 1 :]]
                return np.asarray(_total(case, moved))[None]

            slopes.append(central_differences(value, array.reshape(-1)).reshape(array.shape))
    return slopes


def _total(case: Case, arrays: Sequence[Array]) -> Any:
    return weighted_sum(numpy_ops, leaves(case.call(numpy_ops, *arrays)), "float64")


@pytest.mark.parametrize("op", KINKS)
def test_gradient_at_a_kink_is_the_documented_one(backend: str, backend_info: BackendInfo, op: str) -> None:
    """Two backends that differ at ties drift apart; so `plugrad.ops` fixes the gradient there."""
    requires(backend_info, Capability.EXACT_KINKS)
    call, values, expected = KINKS[op]
    given = [np.asarray(x, np.float32) for x in values]
    found = BackendProbe.of(
        backend, lambda ops, *xs: ops.sum(call(ops, *xs)) / float(np.cos(1.0)), given
    ).gradients()
    for want, got in zip(expected, found, strict=True):
        _compare(f"{op}, its gradient at a kink", got, np.asarray(want), 1e-6, 0.0)


def test_stopped_gradient_is_none(backend: str) -> None:
    """`x * stop_gradient(x)` has the gradient x, not 2 x."""
    given = [np.asarray([3.0], np.float32)]
    (found,) = BackendProbe.of(backend, lambda ops, x: x * ops.stop_gradient(x), given).gradients()
    _compare("a stopped gradient", found / np.cos(1.0), np.asarray([3.0]), 1e-5, 0.0)


@cache
def _all_ops(backend: str) -> tuple[BackendProbe, list[str], list[Array]]:
    """A probe of all ops in one function, the names of its values and of its gradients, and what they are alone."""
    # Of the shapes of the test above: a framework that compiles each op has compiled them.
    given = [[_as("float32", x) for x in inputs(case.kinds, 3, 4, seed)] for seed, case in enumerate(SMOOTH)]
    ends = np.cumsum([0, *map(len, given)])

    def everything(ops: Ops, *tensors: Any) -> tuple[Any, ...]:
        bounds = zip(SMOOTH, ends, ends[1:], strict=False)
        return tuple(case.call(ops, *tensors[begin:end]) for case, begin, end in bounds)

    probe = BackendProbe.of(backend, everything, [x for each in given for x in each])
    names: list[str] = []
    for case, own in zip(SMOOTH, given, strict=True):
        names += [case.name] * len(leaves(case.call(numpy_ops, *own)))
    for case, own in zip(SMOOTH, given, strict=True):
        names += [f"{case.name}, its gradient,"] * sum(x.dtype.kind == "f" for x in own)
    return probe, names, [*probe.values(), *probe.gradients()]


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_every_op_is_the_same_in_a_program(backend: str, backend_info: BackendInfo, mode: str) -> None:
    """All ops and their gradients as one program give what they give alone."""
    requires(backend_info, Capability.COMPLETE_UPDATE)
    probe, names, expected = _all_ops(backend)
    for name, want, got in zip(names, expected, probe.run_program(mode, expected), strict=True):
        _compare(f"{name} in {probe.update_mode}", got, want, 1e-5, 1e-5)


def _compare_extremes(found: Sequence[Array]) -> None:
    with np.errstate(all="ignore"):
        expected = extremes(numpy_ops, EXTREMES, LOGITS)
    for (name, want), got in zip(expected.items(), found, strict=True):
        _compare(f"{name}, of extreme numbers", got, np.asarray(want), 1e-5, 1e-30)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_extremes_are_those_of_numpy(ops: Ops, to_numpy: Convert) -> None:
    """NaN, infinities and large numbers."""
    _compare_extremes(to_numpy([*extremes(ops, ops.asarray(EXTREMES), ops.asarray(LOGITS)).values()]))


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("mode", ["none", "auto"])
def test_extremes_are_those_of_numpy_in_a_program(backend: str, backend_info: BackendInfo, mode: str) -> None:
    """Compilers reorder and approximate: not so that NaN, infinities or large numbers come out otherwise."""
    requires(backend_info, Capability.COMPLETE_UPDATE)
    probe = BackendProbe.of(backend, lambda ops, *xs: tuple(extremes(ops, *xs).values()), [EXTREMES, LOGITS])
    values_and_two_gradients = probe.run_program(mode)
    _compare_extremes(values_and_two_gradients[:-2])


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.filterwarnings("error")
def test_asarray_takes_every_array(ops: Ops, to_numpy: Convert, backend_info: BackendInfo, name: str) -> None:
    """Transposed, reversed, strided, empty, read-only: without a warning, and as it is."""
    array = ARRAYS[name][...]
    array.flags.writeable = False
    found = to_numpy(ops.asarray(array))
    _check_dtype(f"asarray of {name}", found, array, backend_info)
    assert found.tolist() == array.tolist()


def test_asarray_keeps_a_tensor(ops: Ops, to_numpy: Convert) -> None:
    """A tensor is not copied, unless its dtype changes."""
    tensor = ops.asarray([1.0, 2.0])
    assert ops.asarray(tensor) is tensor
    assert to_numpy(ops.asarray(tensor, "int64")).tolist() == [1, 2]


def test_one_hot_of_an_index_outside_is_zero(ops: Ops, to_numpy: Convert) -> None:
    """No error and no wrap-around."""
    assert to_numpy(ops.one_hot(ops.asarray([0, 2, -1]), 2)).tolist() == [[1, 0], [0, 0], [0, 0]]


def test_python_numbers_keep_the_dtype_of_the_tensor(ops: Ops, to_numpy: Convert) -> None:
    """A Python number adapts to its tensor, as an operand or an argument."""
    x = ops.asarray([0.5, 2.0])
    results = [2 * x, x - 1, x / 3.0, 1.0 / x, -x, ops.power(x, 2), ops.minimum(x, 1), ops.clip(x, 0, 1)]
    assert {str(each.dtype) for each in to_numpy(results)} == {"float32"}


def test_shape_is_of_plain_ints(ops: Ops) -> None:
    """A tuple of Python ints: code branches on it while it is traced."""
    shape = ops.shape(ops.zeros((2, 1, 3)))
    assert shape == (2, 1, 3)
    assert isinstance(shape, tuple)
    assert {type(length) for length in shape} == {int}


def test_batches_cross_and_come_back(backend: str) -> None:
    """Nested dicts of arrays; floats of any width are float32 when they are back, the rest is what it was."""
    learner, rng = tiny_learner(backend), np.random.default_rng(0)
    batch: dict[str, dict[str, Any]] = {
        "a": {
            "float64": rng.normal(size=(3, 2)),
            "int64": np.arange(3),
            "uint8": np.arange(3, dtype=np.uint8),
        },
        "b": {"float32": np.ones((), np.float32), "bool": np.array([True, False]), "empty": np.zeros((0, 2))},
    }
    back = learner._convert_to_numpy(learner._convert_batch_type(batch))
    for module_id, columns in batch.items():
        for column, array in columns.items():
            found = back[module_id][column]
            assert isinstance(found, np.ndarray | np.generic), (
                f"{column}: convert_to_numpy gives {type(found)}"
            )
            assert found.dtype.kind == array.dtype.kind, f"{column} came back as {found.dtype}"
            np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(array, np.float32))


@pytest.mark.filterwarnings("error")
def test_batches_of_every_layout_are_good(backend: str) -> None:
    """Read-only, reversed, transposed and strided arrays are good batches; and a batch is never written to."""
    array = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    array.flags.writeable = False
    layouts = {"plain": array, "reversed": array[::-1], "transposed": array.T, "strided": array[::2]}
    learner = tiny_learner(backend)
    found = learner._convert_to_numpy(learner._convert_batch_type(layouts))
    for name, layout in layouts.items():
        np.testing.assert_array_equal(found[name], layout, err_msg=name)
        found[name] = found[name] + 1.0
    np.testing.assert_array_equal(array, np.arange(12.0).reshape(4, 3))


@pytest.mark.parametrize("value", [0.5, 3, True, np.arange(3.0), np.arange(3)], ids=str)
def test_variables_keep_their_place_and_give_copies(backend: str, value: Any) -> None:
    """`read` follows `assign`; `snapshot` and `numpy` are copies; floats are float32, ints int32, unless told."""
    learner = tiny_learner(backend)
    variable = learner._get_tensor_variable(value)
    kinds = {"f": "float32", "i": "int32", "b": "bool"}
    assert str(variable.numpy().dtype) == kinds[np.asarray(value).dtype.kind]
    first, copy = variable.snapshot(), variable.numpy()
    variable.assign(np.zeros_like(value))
    np.testing.assert_array_equal(learner._convert_to_numpy(variable.read()), np.zeros_like(value))
    np.testing.assert_array_equal(copy, value, err_msg="numpy() is a view of the live buffer")
    variable.assign(first)
    np.testing.assert_array_equal(variable.numpy(), value, err_msg="snapshot() is a view of the live buffer")
    assert str(learner._get_tensor_variable(1, "float32").numpy().dtype) == "float32"


__all__ = [name for name in dir() if name.startswith("test_")]
