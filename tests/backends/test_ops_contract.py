"""What `Ops` promises beyond values: names, arguments, gradients at kinks, extremes, kinds of arrays."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plugrad import numpy_ops
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

DECLARED = {name: f for name, f in vars(Ops).items() if inspect.isfunction(f) and not name.startswith("_")}
NAN, INF = np.nan, np.inf


def public_functions(module: Any) -> dict[str, Any]:
    own = inspect.getmembers(module, lambda x: inspect.isfunction(x) and x.__module__ == module.__name__)
    return {name: function for name, function in own if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.default) for p in found if p.name != "self"]


def check_namespace(module: Any) -> None:
    functions = public_functions(module)
    assert sorted(functions) == sorted(DECLARED)
    assert {n: parameters(f) for n, f in functions.items()} == {n: parameters(f) for n, f in DECLARED.items()}


def test_backend_has_the_ops_of_the_protocol_and_no_others(ops: Ops) -> None:
    check_namespace(ops)


def test_numpy_has_the_ops_of_the_protocol_and_no_others() -> None:
    check_namespace(numpy_ops)


def test_backend_defines_them_in_the_order_of_the_protocol(ops: Any) -> None:
    """Twins are read side by side."""
    functions = public_functions(ops)
    assert sorted(functions, key=lambda name: functions[name].__code__.co_firstlineno) == list(DECLARED)


@pytest.mark.parametrize("name", DECLARED)
def test_every_op_is_documented(name: str) -> None:
    assert inspect.getdoc(DECLARED[name])


KINKS: dict[str, tuple[Callable[..., Any], list[list[float]], list[list[float]]]] = {
    "minimum": (lambda o, x, y: o.minimum(x, y), [[2.0], [2.0]], [[1.0], [0.0]]),
    "maximum": (lambda o, x, y: o.maximum(x, y), [[2.0], [2.0]], [[1.0], [0.0]]),
    "clip": (lambda o, x: o.clip(x, -1.0, 1.0), [[-1.0, 1.0]], [[1.0, 1.0]]),
    "abs": (lambda o, x: o.abs(x), [[0.0]], [[0.0]]),
    "sign": (lambda o, x: o.sign(x) * x, [[0.0]], [[0.0]]),
    "relu": (lambda o, x: o.relu(x), [[0.0]], [[0.0]]),
    "huber": (lambda o, x: o.huber(x, 2.0), [[-2.0, 0.0, 2.0]], [[-2.0, 0.0, 2.0]]),
    "max": (lambda o, x: o.max(x), [[3.0, 3.0, 1.0]], [[0.5, 0.5, 0.0]]),
    "min": (lambda o, x: o.min(x, axis=0), [[1.0, 3.0, 1.0]], [[0.5, 0.0, 0.5]]),
    "norm": (lambda o, x: o.norm(x), [[0.0, 0.0]], [[0.0, 0.0]]),
    "std": (lambda o, x: o.std(x), [[1.5, 1.5]], [[0.0, 0.0]]),
    "stop_gradient": (lambda o, x: x * o.stop_gradient(x), [[3.0]], [[3.0]]),
    "where": (lambda o, x: o.where(x > 0, x, 0.0), [[0.0, 1.0]], [[0.0, 1.0]]),
}


@pytest.mark.parametrize("name", KINKS)
def test_gradient_at_a_kink_is_the_documented_one(ops: Ops, gradients: Callable[..., Any], name: str) -> None:
    call, values, expected = KINKS[name]
    tensors = [ops.asarray(x) for x in values]
    found = gradients(lambda *xs: ops.sum(call(ops, *xs)), tensors)
    assert [np.asarray(gradient).tolist() for gradient in found] == expected


def extremes(ops: Any, x: Tensor, logits: Tensor) -> list[Tensor]:
    """What must survive NaN, infinity and large numbers: all in `x`; in `logits` the last two."""
    one_by_one = [ops.minimum(x, 0.5), ops.maximum(x, 0.5), ops.clip(x, -1.0, 1.0), ops.abs(x), ops.relu(x)]
    smooth = [ops.softplus(x), ops.sigmoid(x), ops.tanh(x), ops.exp(x), ops.huber(x), ops.isfinite(x)]
    swapped = [ops.minimum(0.0 * x, x), ops.maximum(0.0 * x, x), ops.where(ops.isfinite(x), x, 0.0)]
    whole = [ops.norm(x), ops.sum(x), ops.mean(x), ops.std(x), ops.var(x), ops.norm(x[2:])]
    rows = [ops.log_softmax(logits), ops.softmax(logits), ops.logsumexp(logits), ops.argmax(logits, axis=-1)]
    return [ops.cast(part, "float32") for part in (*one_by_one, *smooth, *swapped, *whole, *rows)]


EXTREMES = np.asarray([NAN, INF, -INF, 1e30, -1e30, 1000.0, -1000.0, 90.0, -90.0, 0.0], np.float32)
LOGITS = np.asarray([[1e4, 1e4 - 1.0, 0.0], [-INF, 1.0, -INF], [-3.4e38, 2.0, 1.0], [-1e4, -1e4, -1e4]], "f4")


def expected_extremes() -> list[Array]:
    with np.errstate(all="ignore"):
        return extremes(numpy_ops, EXTREMES, LOGITS)


def test_extremes_are_those_of_numpy(ops: Ops) -> None:
    found = extremes(ops, ops.asarray(EXTREMES), ops.asarray(LOGITS))
    for want, got in zip(expected_extremes(), found, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-30)


def test_extremes_are_those_of_numpy_in_a_traced_program(ops: Ops, trace: Callable[..., Any]) -> None:
    found = trace(lambda *xs: extremes(ops, *xs), [EXTREMES, LOGITS])
    for want, got in zip(expected_extremes(), found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-30)


ARRAYS: dict[str, Array] = {
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "reversed": np.arange(6.0)[::-1],
    "strided": np.arange(6.0, dtype=np.float32)[::2],
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(1.5),
    "ints": np.arange(3, dtype=np.int32),
    "bytes": np.arange(3, dtype=np.uint8),
    "bools": np.asarray([True, False]),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.filterwarnings("error")
def test_asarray_takes_every_array(ops: Ops, name: str) -> None:
    array = ARRAYS[name][...]
    array.flags.writeable = False
    found = np.asarray(ops.asarray(array))
    assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())


def test_asarray_keeps_a_tensor(ops: Ops) -> None:
    tensor = ops.asarray([1.0, 2.0])
    assert ops.asarray(tensor) is tensor
    assert np.asarray(ops.asarray(tensor, "int64")).tolist() == [1, 2]


def test_one_hot_of_an_index_outside_is_zero(ops: Ops) -> None:
    assert np.asarray(ops.one_hot(ops.asarray([0, 2, -1]), 2)).tolist() == [[1, 0], [0, 0], [0, 0]]


def test_python_numbers_keep_the_dtype_of_the_tensor(ops: Ops) -> None:
    x = ops.asarray([0.5, 2.0])
    results = [2 * x, x - 1, x / 3.0, 1.0 / x, -x, ops.power(x, 2), ops.minimum(x, 1), ops.clip(x, 0, 1)]
    assert {str(np.asarray(result).dtype) for result in results} == {"float32"}


def test_shape_is_of_plain_ints(ops: Ops) -> None:
    shape = ops.shape(ops.zeros((2, 1, 3)))
    assert shape == (2, 1, 3)
    assert isinstance(shape, tuple)
    assert {type(length) for length in shape} == {int}
