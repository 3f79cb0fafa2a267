"""`Ops` that record an ONNX graph: a function of an `OnnxTensor` adds nodes, one of arrays alone is numpy's.

Each function is documented in `plugrad.ops.Ops`. Ops that are not here raise a `ConfigError`.
"""

# ruff: noqa: D103
# Names of the Array API hide builtins: in this module `abs`, `max`, `min` and `sum` are the functions below.

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from plugrad import numpy_ops
from plugrad.errors import ConfigError
from plugrad.onnx.graph import OnnxTensor
from plugrad.ops import RULES, Axis, Shape
from plugrad.types import Tensor


def _operator(op: str, in_numpy: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function that is one operator of ONNX on its arguments."""

    def record(*inputs: Tensor) -> Tensor:
        return _node(op, *inputs) if _is_recorded(*inputs) else in_numpy(*inputs)

    return record


def _is_recorded(*inputs: Tensor) -> bool:
    return any(isinstance(each, OnnxTensor) for each in inputs)


def _nodes(op: str, *inputs: Tensor, **attributes: Any) -> list[OnnxTensor]:
    graph = next(each.graph for each in inputs if isinstance(each, OnnxTensor))
    outputs: list[OnnxTensor] = graph.apply(op, *inputs, **attributes)
    return outputs


def _node(op: str, *inputs: Tensor, **attributes: Any) -> OnnxTensor:
    return _nodes(op, *inputs, **attributes)[0]


exp = _operator("Exp", numpy_ops.exp)
log = _operator("Log", numpy_ops.log)
sqrt = _operator("Sqrt", numpy_ops.sqrt)
abs = _operator("Abs", numpy_ops.abs)
sign = _operator("Sign", numpy_ops.sign)
power = _operator("Pow", numpy_ops.power)
minimum = _operator("Min", numpy_ops.minimum)
maximum = _operator("Max", numpy_ops.maximum)
logical_and = _operator("And", numpy_ops.logical_and)
logical_or = _operator("Or", numpy_ops.logical_or)
logical_not = _operator("Not", numpy_ops.logical_not)
softplus = _operator("Softplus", numpy_ops.softplus)
sigmoid = _operator("Sigmoid", numpy_ops.sigmoid)
tanh = _operator("Tanh", numpy_ops.tanh)
atanh = _operator("Atanh", numpy_ops.atanh)
erf = _operator("Erf", numpy_ops.erf)
relu = _operator("Relu", numpy_ops.relu)
matmul = _operator("MatMul", numpy_ops.matmul)


def __getattr__(name: str) -> Callable[..., Tensor]:
    """The function in place of an op that has no nodes here: no built-in network acts with it."""
    if name not in RULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise ConfigError(
            f"ops.{name} cannot be exported to ONNX: no built-in network acts with it. In a network of your own "
            "compute it from other ops, or leave it out of what acting computes"
        )

    return refuse


def square(x: Tensor) -> Tensor:
    return x * x


def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    x = x if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if not _is_recorded(condition, x, y):
        return numpy_ops.where(condition, x, y)
    dtype = next(each.dtype for each in (x, y) if hasattr(each, "dtype"))
    x, y = (each if hasattr(each, "dtype") else np.asarray(each, dtype) for each in (x, y))
    return _node("Where", condition, x, y)


def _reduce(op: str, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    axes = [] if axis is None else [[axis] if isinstance(axis, int) else [*axis]]
    return _node(op, x, *axes, keepdims=int(keepdims))


def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _reduce("ReduceSum", x, axis, keepdims)


def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _reduce("ReduceMean", x, axis, keepdims)


def max(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _reduce("ReduceMax", x, axis, keepdims)


def min(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _reduce("ReduceMin", x, axis, keepdims)


def var(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return mean(square(x - mean(x, axis, True)), axis, keepdims)


def std(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return sqrt(var(x, axis, keepdims))


def argmax(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    if axis is not None:
        return _node("ArgMax", x, axis=axis, keepdims=int(keepdims))
    index = _node("ArgMax", reshape(x, (-1,)), axis=0, keepdims=0)
    return reshape(index, (1,) * x.ndim) if keepdims else index


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return _node("Softmax", x, axis=axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return _node("LogSoftmax", x, axis=axis)


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    largest = max(x, axis, True)
    result = largest + log(sum(exp(x - largest), axis, True))
    return result if keepdims else squeeze(result, axis)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return matmul(x, weight) + (bias if weight.ndim == 2 else bias[:, None])


def conv2d(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    # ONNX has the channels before height and width.
    convolved = _node(
        "Conv",
        permute_dims(x, (0, 3, 1, 2)),
        permute_dims(weight, (3, 2, 0, 1)),
        strides=[stride, stride],
    )
    return permute_dims(convolved, (0, 2, 3, 1))


def one_hot(indices: Tensor, depth: int) -> Tensor:
    return cast(cast(indices, "int64")[..., None] == np.arange(depth), "float32")


def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return _node("Gather", x, indices, axis=axis)


def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
    return _node("GatherElements", x, indices, axis=axis)


def reshape(x: Tensor, shape: Shape) -> Tensor:
    if not _is_recorded(x):
        return numpy_ops.reshape(x, shape)
    return _node("Reshape", x, [-1 if length is None else length for length in shape])


def permute_dims(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    if isinstance(x, OnnxTensor) and x.value is not None:
        return x.graph.constant(x.value.transpose(axes), x.name)
    return _node("Transpose", x, perm=list(axes)) if _is_recorded(x) else numpy_ops.permute_dims(x, axes)


def expand_dims(x: Tensor, axis: int) -> Tensor:
    return _node("Unsqueeze", x, [axis]) if _is_recorded(x) else numpy_ops.expand_dims(x, axis)


def squeeze(x: Tensor, axis: int) -> Tensor:
    return _node("Squeeze", x, [axis])


def stack(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    return concat([expand_dims(x, axis) for x in xs], axis)


def concat(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    return _node("Concat", *xs, axis=axis) if _is_recorded(*xs) else numpy_ops.concat(xs, axis)


def split(x: Tensor, sizes: Sequence[int], axis: int = 0) -> Sequence[Tensor]:
    return _nodes("Split", x, [*sizes], num_outputs=len(sizes), axis=axis)


def broadcast_to(x: Tensor, shape: Shape) -> Tensor:
    if not _is_recorded(x):
        return numpy_ops.broadcast_to(x, shape)
    lengths = [np.asarray([n]) if n is not None else x.graph.batch_length() for n in shape]
    return _node("Expand", x, concat(lengths) if lengths else [], shape=shape)


def shape(x: Tensor) -> Shape:
    return tuple(x.shape)


def zeros_like(x: Tensor) -> Tensor:
    return _full_like(x, 0)


def ones_like(x: Tensor) -> Tensor:
    return _full_like(x, 1)


def _full_like(x: Tensor, value: int) -> Tensor:
    return _node("Expand", x.graph.constant(np.asarray(value, x.dtype)), _node("Shape", x), shape=x.shape)


zeros, ones = numpy_ops.zeros, numpy_ops.ones


def asarray(x: Any, dtype: str | None = None) -> Tensor:
    if not isinstance(x, OnnxTensor):
        return numpy_ops.asarray(x, dtype)
    return x if dtype is None else cast(x, dtype)


def cast(x: Tensor, dtype: str) -> Tensor:
    if not isinstance(x, OnnxTensor):
        return numpy_ops.cast(x, dtype)
    return x if x.dtype == np.dtype(dtype) else _node("Cast", x, to=x.graph.element_type(dtype))


def stop_gradient(x: Tensor) -> Tensor:
    return x


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, reverse: bool = False
) -> tuple[Any, Any]:
    """Unrolled: the length must be known, as that of the single step of acting is."""
    parts = xs if isinstance(xs, tuple) else (xs,)
    carry, steps = init, range(parts[0].shape[0])
    ys: list[Any] = [None] * len(steps)
    for n in reversed(steps) if reverse else steps:
        carry, ys[n] = f(carry, tuple(each[n] for each in xs) if isinstance(xs, tuple) else xs[n])
    if isinstance(ys[0], tuple):
        return carry, tuple(stack(each) for each in zip(*ys, strict=True))
    return carry, stack(ys)
