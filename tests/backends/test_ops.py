"""Every function of `Ops` on every backend against the numpy oracle: values, gradients, traced programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugrad import numpy_ops
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

NAMES = [name for name in vars(Ops) if not name.startswith("_")]
Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One way to call an op: on arrays of these kinds (see `inputs`), all drawn for the same R and C."""

    name: str
    call: Function
    kinds: str
    differentiable: bool = True

    @property
    def op(self) -> str:
        return self.name.split(" ")[0]


def smooth(name: str, kinds: str, call: Function) -> Case:
    return Case(name, call, kinds)


def constant(name: str, kinds: str, call: Function) -> Case:
    return Case(name, call, kinds, differentiable=False)


CASES = [
    smooth("exp", "x", lambda o, x: o.exp(x)),
    smooth("log", "p", lambda o, p: o.log(p)),
    smooth("log1p", "p", lambda o, p: o.log1p(p)),
    smooth("expm1", "x", lambda o, x: o.expm1(x)),
    smooth("sqrt", "p", lambda o, p: o.sqrt(p)),
    smooth("square", "x", lambda o, x: o.square(x)),
    smooth("abs", "x", lambda o, x: o.abs(x)),
    constant("sign", "x", lambda o, x: o.sign(x)),
    smooth("power", "px", lambda o, p, x: o.power(p, x)),
    smooth("power of a number", "x", lambda o, x: o.power(2.0, x)),
    smooth("power to a number", "x", lambda o, x: o.power(x, 3)),
    smooth("minimum", "xy", lambda o, x, y: o.minimum(x, y)),
    smooth("minimum of a row", "xv", lambda o, x, v: o.minimum(x, v)),
    smooth("minimum of a larger one", "xv", lambda o, x, v: o.minimum(v, x)),
    smooth("minimum and a number", "x", lambda o, x: o.minimum(x, 0.5)),
    smooth("maximum", "xy", lambda o, x, y: o.maximum(x, y)),
    smooth("maximum of a larger one", "xv", lambda o, x, v: o.maximum(v, x)),
    smooth("maximum and a number", "x", lambda o, x: o.maximum(x, 0.5)),
    smooth("clip", "x", lambda o, x: o.clip(x, -1.0, 1.0)),
    smooth("clip by tensors", "xy", lambda o, x, y: o.clip(x, y, y + 1.0)),
    smooth("clip from below", "x", lambda o, x: o.clip(x, min=0.0)),
    smooth("clip from above", "x", lambda o, x: o.clip(x, max=0.0)),
    smooth("where", "bxy", lambda o, b, x, y: o.where(b, x, y)),
    smooth("where a number", "bx", lambda o, b, x: o.where(b, x, 0.0)),
    constant("where not a whole number", "bxi", lambda o, b, x, i: (o.where(b, 1, x), o.where(b, 1, i))),
    smooth("where not a number", "bx", lambda o, b, x: o.where(b, 1.0, x)),
    constant("isfinite", "x", lambda o, x: o.isfinite(x)),
    constant("logical_and", "bx", lambda o, b, x: o.logical_and(b, x > 0)),
    constant("logical_or", "bx", lambda o, b, x: o.logical_or(b, x > 0)),
    constant("logical_not", "b", lambda o, b: o.logical_not(b)),
    smooth("softplus", "x", lambda o, x: o.softplus(x)),
    smooth("sigmoid", "x", lambda o, x: o.sigmoid(x)),
    smooth("tanh", "x", lambda o, x: o.tanh(x)),
    smooth("relu", "x", lambda o, x: o.relu(x)),
    smooth("huber", "x", lambda o, x: o.huber(x)),
    smooth("huber with delta", "x", lambda o, x: o.huber(x, 2.5)),
    *(
        smooth(f"{op} of {kwargs}", "s", lambda o, s, op=op, kwargs=kwargs: getattr(o, op)(s, **kwargs))
        for op in ("sum", "mean", "var", "std", "max", "min")
        for kwargs in ({}, {"keepdims": True}, {"axis": -1}, {"axis": (0, 2)}, {"axis": 1, "keepdims": True})
    ),
    constant("argmax", "s", lambda o, s: (o.argmax(s), o.argmax(s, keepdims=True))),
    constant("argmax along", "s", lambda o, s: (o.argmax(s, axis=1), o.argmax(s, axis=-1, keepdims=True))),
    smooth("norm", "s", lambda o, s: o.norm(s)),
    smooth("cumulative_sum", "s", lambda o, s: (o.cumulative_sum(s), o.cumulative_sum(s, axis=1))),
    smooth("softmax", "s", lambda o, s: (o.softmax(s), o.softmax(s, axis=0))),
    smooth("log_softmax", "s", lambda o, s: (o.log_softmax(s), o.log_softmax(s, axis=1))),
    smooth("logsumexp", "s", lambda o, s: (o.logsumexp(s), o.logsumexp(s, axis=0, keepdims=True))),
    smooth("matmul", "xw", lambda o, x, w: o.matmul(x, w)),
    smooth("matmul of stacks", "sw", lambda o, s, w: o.matmul(s, w)),
    smooth("linear", "xwk", lambda o, x, w, k: o.linear(x, w, k)),
    smooth("linear of sequences", "swk", lambda o, s, w, k: o.linear(s, w, k)),
    smooth("linear of one row", "vwk", lambda o, v, w, k: o.linear(v, w, k)),
    *(smooth(f"conv2d by {s}", "cf", lambda o, c, f, s=s: o.conv2d(c, f, s)) for s in (1, 2, 3)),
    constant("one_hot", "i", lambda o, i: o.one_hot(i, 3)),
    smooth("take", "sr", lambda o, s, r: o.take(s, r)),
    smooth("take along", "sr", lambda o, s, r: o.take(s, r * 0 + 1, axis=1)),
    smooth("take_along_axis", "xi", lambda o, x, i: o.take_along_axis(x, i)),
    smooth(
        "take_along_axis of stacks", "s", lambda o, s: o.take_along_axis(s, o.cast(s[:, :1] > 0, "int64"), 1)
    ),
    smooth("reshape", "s", lambda o, s: (o.reshape(s, (-1, o.shape(s)[0])), o.reshape(s, (-1,)))),
    smooth("permute_dims", "s", lambda o, s: (o.permute_dims(s, (1, 0, 2)), o.permute_dims(s, (2, 0, 1)))),
    smooth("expand_dims", "x", lambda o, x: (o.expand_dims(x, 0), o.expand_dims(x, -1))),
    smooth("squeeze", "x", lambda o, x: (o.squeeze(x[:, :1], -1), o.squeeze(x[:1], 0))),
    smooth("stack", "xy", lambda o, x, y: (o.stack([x, y]), o.stack((x, y), axis=-1))),
    smooth("concat", "xy", lambda o, x, y: (o.concat([x, y]), o.concat((x, y), axis=-1))),
    smooth("split", "s", lambda o, s: (*o.split(s, (1, 1), axis=1), *o.split(s, [o.shape(s)[0]]))),
    smooth("split unevenly", "xy", lambda o, x, y: tuple(o.split(o.concat([x, y, x]), [o.shape(x)[0]] * 3))),
    smooth("broadcast_to", "xv", lambda o, x, v: o.broadcast_to(v, o.shape(x))),
    constant("shape", "s", lambda o, s: o.asarray(o.shape(s))),
    constant("zeros_like", "xb", lambda o, x, b: (o.zeros_like(x), o.zeros_like(b))),
    constant("ones_like", "xb", lambda o, x, b: (o.ones_like(x), o.ones_like(b))),
    constant("zeros", "", lambda o: (o.zeros((2, 3)), o.zeros((), "float64"), o.zeros((1,), "bool"))),
    constant("ones", "", lambda o: (o.ones((2, 3)), o.ones((), "int64"), o.ones((1,), "int32"))),
    constant(
        "asarray", "x", lambda o, x: (o.asarray(x), o.asarray(x, "float64"), o.asarray([1.5], "float64"))
    ),
    constant("asarray of python", "", lambda o: tuple(o.asarray(x) for x in (1, 2.5, True, [[1.0], [2.0]]))),
    constant("cast", "xb", lambda o, x, b: (o.cast(x, "int64"), o.cast(b, "float32"), o.cast(x, "int32"))),
    smooth("cast of floats", "x", lambda o, x: o.cast(o.cast(x, "float64"), "float64")),
    smooth("stop_gradient", "x", lambda o, x: x + o.stop_gradient(o.zeros_like(x))),
    smooth("scan", "xv", lambda o, x, v: o.scan(lambda c, row: (0.9 * c + row, c * row), v, x)),
    smooth("scan of tuples", "xyv", lambda o, x, y, v: _scan_two(o, x, y, v)),
]
BY_NAME = {case.name: case for case in CASES}


def _scan_two(ops: Ops, x: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        return (carry[0] + row[0], carry[1] * 0.5 + row[1]), (carry[0] * row[1], carry[1])

    last, ys = ops.scan(step, (v, 2.0 * v), (x, y))
    return (*last, *ys)


# Inputs: reals lie off the kinks of all ops (multiples of 1/100), and no two of one call are equal.


def inputs(kinds: str, rows: int, columns: int, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = {"s": (rows, 2, columns), "w": (columns, 3), "v": (columns,), "k": (3,)}
    shapes |= {"c": (2, rows + 2, columns + 1, 2), "f": (3, 2, 2, 2)}  # images and a kernel that fits
    return [_input(rng, kind, shapes.get(kind, (rows, columns)), n / 10) for n, kind in enumerate(kinds, 1)]


def _input(rng: np.random.Generator, kind: str, shape: tuple[int, ...], offset: float) -> Array:
    match kind:
        case "b":
            return rng.random(shape) < 0.5
        case "i":
            return rng.integers(0, shape[1], shape)
        case "r":
            return rng.integers(0, shape[0], 4)
    whole = rng.choice(np.arange(-300, 300), size=shape, replace=False)
    real = (whole + offset + 0.05) / 100
    return np.abs(real) + 0.2 if kind == "p" else real


seeds = st.integers(0, 2**32 - 1)
lengths = st.integers(1, 4)


def flat(result: Any) -> list[Any]:
    return [leaf for part in result for leaf in flat(part)] if isinstance(result, tuple) else [result]


# Values.


@pytest.mark.parametrize("name", NAMES)
def test_every_op_has_a_case(name: str) -> None:
    assert name in {case.op for case in CASES}


TOLERANCE = {"float32": (2e-5, 1e-5), "float64": (1e-11, 1e-12)}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=6)
@given(rows=lengths, columns=lengths, seed=seeds)
def test_values_are_those_of_numpy(
    ops: Ops, name: str, dtype: str, rows: int, columns: int, seed: int
) -> None:
    case = BY_NAME[name]
    arrays = [x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs(case.kinds, rows, columns, seed)]
    expected = flat(case.call(numpy_ops, *arrays))
    found = flat(case.call(ops, *map(ops.asarray, arrays)))
    for want, got in zip(map(np.asarray, expected), map(np.asarray, found), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, *TOLERANCE[dtype])


# Gradients.


def weighted_sum(ops: Any, result: Any) -> Tensor:
    """A scalar that weighs every entry of a result differently, so that no gradient cancels unseen."""
    total = 0.0
    for n, part in enumerate(flat(result)):
        size = int(np.prod(ops.shape(part), dtype=int))
        weights = np.cos(1.0 + n + np.arange(size)).reshape(ops.shape(part))
        total = total + ops.sum(part * ops.asarray(weights, "float64"))
    return total


def finite_differences(f: Callable[..., float], arrays: Sequence[Array], step: float = 1e-6) -> list[Array]:
    return [_finite_difference(f, arrays, n, step) for n, x in enumerate(arrays) if x.dtype.kind == "f"]


def _finite_difference(f: Callable[..., float], arrays: Sequence[Array], n: int, step: float) -> Array:
    gradient = np.zeros_like(arrays[n])
    for index in np.ndindex(gradient.shape):
        shift = np.zeros_like(gradient)
        shift[index] = step
        above, below = ([*arrays[:n], arrays[n] + sign * shift, *arrays[n + 1 :]] for sign in (1, -1))
        gradient[index] = (f(*above) - f(*below)) / (2 * step)
    return gradient


@pytest.mark.parametrize("name", [case.name for case in CASES if case.differentiable])
@settings(max_examples=5)
@given(rows=lengths, columns=lengths, seed=seeds)
def test_gradients_are_the_finite_differences_of_numpy(
    ops: Ops, gradients: Function, name: str, rows: int, columns: int, seed: int
) -> None:
    case = BY_NAME[name]
    arrays = inputs(case.kinds, rows, columns, seed)
    expected = finite_differences(lambda *xs: weighted_sum(numpy_ops, case.call(numpy_ops, *xs)), arrays)
    found = gradients(lambda *xs: weighted_sum(ops, case.call(ops, *xs)), [*map(ops.asarray, arrays)])
    for want, got in zip(expected, found, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6, atol=1e-6)


# Tracing.


def test_every_op_is_the_same_in_a_traced_program(ops: Ops, gradients: Function, trace: Function) -> None:
    """All cases and their gradients as one program: under XLA, or as torch's traced graph."""
    arrays = [inputs(case.kinds, 3, 4, seed) for seed, case in enumerate(CASES)]
    ends = np.cumsum([0, *map(len, arrays)])

    def one(case: Case, tensors: Sequence[Tensor]) -> list[Tensor]:
        results = flat(case.call(ops, *tensors))
        if case.differentiable:
            results += gradients(lambda *xs: weighted_sum(ops, case.call(ops, *xs)), tensors)
        return [ops.cast(x, "float64") for x in results]

    def everything(*tensors: Tensor) -> list[Tensor]:
        bounds = zip(CASES, ends, ends[1:], strict=False)
        return [x for case, begin, end in bounds for x in one(case, tensors[begin:end])]

    flat_arrays = [x for case_arrays in arrays for x in case_arrays]
    eager = everything(*map(ops.asarray, flat_arrays))
    for want, got in zip(eager, trace(everything, flat_arrays), strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-6, atol=1e-7)
