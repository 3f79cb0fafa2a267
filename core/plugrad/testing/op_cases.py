"""The calls of every op that are compared: on which arrays, and whether there is a gradient.

An op that is not called here is called once, as its rule in `plugrad.ops` says.

Reals lie off the kinks of all ops (multiples of 1/100), and no two of one call are equal; `KINKS` has what holds
on the kinks.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from plugrad.ops import BOOL, INTEGER, RULES, Ops, Rule
from plugrad.types import Array, Tensor

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One way to call an op.

    Args:
        name: the op, and what is special about this call.
        kinds: a letter per argument, see `inputs`.
        call: `call(ops, *tensors)`.
        differentiable: whether the results depend smoothly on the real arguments.
    """

    name: str
    kinds: str
    call: Function
    differentiable: bool = True

    @property
    def op(self) -> str:
        """The op that it is about."""
        return self.name.split(" ")[0]


smooth = Case
constant = partial(Case, differentiable=False)

_WRITTEN = [
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
    smooth("atanh", "x", lambda o, x: o.atanh(0.3 * x)),
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
    smooth("sort", "s", lambda o, s: (o.sort(s), o.sort(s, axis=1), o.sort(s, axis=0))),
    smooth("softmax", "s", lambda o, s: (o.softmax(s), o.softmax(s, axis=0))),
    smooth("log_softmax", "s", lambda o, s: (o.log_softmax(s), o.log_softmax(s, axis=1))),
    smooth("logsumexp", "s", lambda o, s: (o.logsumexp(s), o.logsumexp(s, axis=0, keepdims=True))),
    smooth("matmul", "xw", lambda o, x, w: o.matmul(x, w)),
    smooth("matmul of stacks", "sw", lambda o, s, w: o.matmul(s, w)),
    smooth("linear", "xwk", lambda o, x, w, k: o.linear(x, w, k)),
    smooth("linear of sequences", "swk", lambda o, s, w, k: o.linear(s, w, k)),
    smooth("linear of n layers", "xwk", lambda o, x, w, k: _linear_of_layers(o, x, w, k)),
    smooth("linear of one row", "vwk", lambda o, v, w, k: o.linear(v, w, k)),
    *(smooth(f"conv2d by {s}", "cf", lambda o, c, f, s=s: o.conv2d(c, f, s)) for s in (1, 2, 3)),
    smooth("take", "sr", lambda o, s, r: o.take(s, r)),
    smooth("take along", "sr", lambda o, s, r: o.take(s, r * 0 + 1, axis=1)),
    smooth("take_along_axis", "xi", lambda o, x, i: o.take_along_axis(x, i)),
    smooth(
        "take_along_axis of stacks", "s", lambda o, s: o.take_along_axis(s, o.cast(s[:, :1] > 0, "int64"), 1)
    ),
    smooth("reshape", "s", lambda o, s: (o.reshape(s, (-1, o.shape(s)[0])), o.reshape(s, (-1,)))),
    smooth("permute_dims", "s", lambda o, s: (o.permute_dims(s, (1, 0, 2)), o.permute_dims(s, (2, 0, 1)))),
    smooth("flip", "s", lambda o, s: (o.flip(s, 0), o.flip(s, -1))),
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
    smooth(
        "scan in reverse", "xv", lambda o, x, v: o.scan(lambda c, row: (0.9 * c + row, c * row), v, x, True)
    ),
    smooth("scan of tuples in reverse", "xyv", lambda o, x, y, v: _scan_two(o, x, y, v, reverse=True)),
]


def _by_rule(op: str, rule: Rule) -> Case:
    """A call of an op with the tensors that it must have, and its rule's example of other arguments."""
    names = list(inspect.signature(getattr(Ops, op)).parameters.values())[1:]
    required = [each.name for each in names if each.default is each.empty]
    reals = iter("pp" if rule.is_of_positive else "xy")

    def letters(name: str) -> str:
        kinds = rule.others.get(name, rule.kinds)
        number = 2 if name == "xs" else 1
        return (
            "b" * number
            if kinds == BOOL
            else "i" * number
            if kinds == INTEGER
            else "".join(next(reals) for _ in range(number))
        )

    given = {name: letters(name) for name in required if name in (*rule.tensors, *rule.others)}

    def call(ops: Ops, *tensors: Tensor) -> Any:
        rest = iter(tensors)
        arguments = [
            [next(rest), next(rest)] if name == "xs" else next(rest) if name in given else rule.example[name]
            for name in required
        ]
        return getattr(ops, op)(*arguments)

    return Case(op, "".join(given.values()), call, "f" in rule.kinds and rule.is_smooth and not rule.gives)


def _cases() -> Iterator[Case]:
    for op, rule in RULES.items():
        yield from [case for case in _WRITTEN if case.op == op] or [_by_rule(op, rule)]


CASES = list(_cases())
EXACT = frozenset(op for op, rule in RULES.items() if rule.is_exact)
"""Ops that choose, move and convert entries, and round none."""


def _scan_two(ops: Ops, x: Tensor, y: Tensor, v: Tensor, reverse: bool = False) -> tuple[Tensor, ...]:
    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        return (carry[0] + row[0], carry[1] * 0.5 + row[1]), (carry[0] * row[1], carry[1])

    last, ys = ops.scan(step, (v, 2.0 * v), (x, y), reverse=reverse)
    return (*last, *ys)


def _linear_of_layers(ops: Ops, x: Tensor, w: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    weight, bias = ops.stack([w, 0.5 * w]), ops.stack([k, -k])
    return ops.linear(x, weight, bias), ops.linear(ops.stack([x, 0.5 * x]), weight, bias)


def inputs(kinds: str, rows: int, columns: int, seed: int) -> list[Array]:
    """Arguments of a case.

    Args:
        kinds: a letter each. x, y: reals [rows, columns]; p: positive ones; s: [rows, 2, columns]; v: [columns];
            w: [columns, 3]; k: [3]; c, f: images and a kernel that fits; b: bool; i: int64 below `columns`; r: four
            int64 below `rows`.
        rows: a size.
        columns: a size.
        seed: of the numbers.

    Returns:
        Float64, bool and int64 arrays.
    """
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


NAN, INF = np.nan, np.inf

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


def extremes(ops: Any, x: Tensor, logits: Tensor) -> dict[str, Tensor]:
    """What must survive NaN, infinity and large numbers.

    Args:
        ops: tensor functions.
        x: for element-wise ops and reductions.
        logits: [rows, 3], for ops on logits.

    Returns:
        `{what was computed: float32 tensor}`.
    """
    computed = {
        "minimum": ops.minimum(x, 0.5),
        "maximum": ops.maximum(x, 0.5),
        "clip": ops.clip(x, -1.0, 1.0),
        **{
            name: getattr(ops, name)(x)
            for name in ("abs", "relu", "softplus", "sigmoid", "tanh", "exp", "huber")
        },
        **{name: getattr(ops, name)(x) for name in ("isfinite", "erf", "atanh")},
        "atanh of clip": ops.atanh(ops.clip(x, -1.0, 1.0)),
        "minimum of NaN": ops.minimum(0.0 * x, x),
        "maximum of NaN": ops.maximum(0.0 * x, x),
        "where": ops.where(ops.isfinite(x), x, 0.0),
        **{name: getattr(ops, name)(x) for name in ("norm", "sum", "mean", "std", "var")},
        "norm of the rest": ops.norm(x[2:]),
        **{name: getattr(ops, name)(logits) for name in ("log_softmax", "softmax", "logsumexp")},
        "argmax": ops.argmax(logits, axis=-1),
    }
    return {name: ops.cast(part, "float32") for name, part in computed.items()}


EXTREMES = np.asarray([NAN, INF, -INF, 1e30, -1e30, 1000.0, -1000.0, 90.0, -90.0, 0.0], np.float32)
LOGITS = np.asarray([[1e4, 1e4 - 1.0, 0.0], [-INF, 1.0, -INF], [-3.4e38, 2.0, 1.0], [-1e4, -1e4, -1e4]], "f4")


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
