"""`Ops` in numpy: used for acting, and as the reference that backends are tested against.

Each function is documented in `plugrad.ops.Ops`. Full reductions give numpy scalars. There are no gradients.
"""

# ruff: noqa: D103
# Array API names shadow builtins: in this module `abs`, `max`, `min` and `sum` are the functions below.

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from plugrad.ops import Axis, Shape
from plugrad.types import Tensor


def exp(x: Tensor) -> Tensor:
    return np.exp(x)


def log(x: Tensor) -> Tensor:
    return np.log(x)


def log1p(x: Tensor) -> Tensor:
    return np.log1p(x)


def expm1(x: Tensor) -> Tensor:
    return np.expm1(x)


def sqrt(x: Tensor) -> Tensor:
    return np.sqrt(x)


def square(x: Tensor) -> Tensor:
    return np.square(x)


def abs(x: Tensor) -> Tensor:
    return np.abs(x)


def sign(x: Tensor) -> Tensor:
    return np.sign(x)


def power(x: Tensor, y: Tensor) -> Tensor:
    return np.power(x, y)


def minimum(x: Tensor, y: Tensor) -> Tensor:
    return np.minimum(x, y)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    return np.maximum(x, y)


def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    return np.clip(x, min, max)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return np.where(condition, x, y)


def isfinite(x: Tensor) -> Tensor:
    return np.isfinite(x)


def logical_and(x: Tensor, y: Tensor) -> Tensor:
    return np.logical_and(x, y)


def logical_or(x: Tensor, y: Tensor) -> Tensor:
    return np.logical_or(x, y)


def logical_not(x: Tensor) -> Tensor:
    return np.logical_not(x)


def softplus(x: Tensor) -> Tensor:
    return np.logaddexp(x, 0)


def sigmoid(x: Tensor) -> Tensor:
    return np.exp(-np.logaddexp(-x, 0))


def tanh(x: Tensor) -> Tensor:
    return np.tanh(x)


def atanh(x: Tensor) -> Tensor:
    return np.arctanh(x)


def erf(x: Tensor) -> Tensor:
    return np.asarray(_erf(x), np.asarray(x).dtype)


_erf = np.frompyfunc(math.erf, 1, 1)  # numpy has none


def relu(x: Tensor) -> Tensor:
    return np.maximum(x, 0)


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    inside = np.minimum(np.abs(x), delta)
    return 0.5 * inside * inside + delta * (np.abs(x) - inside)


# np.sum and similar functions take five times as long for a few rows.
_sum: Callable[..., Tensor] = np.add.reduce
_max: Callable[..., Tensor] = np.maximum.reduce
_min: Callable[..., Tensor] = np.minimum.reduce


def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _sum(x, axis=axis, dtype=_dtype_of_sums(x), keepdims=keepdims)


def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return np.mean(x, axis=axis, keepdims=keepdims)


def var(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return np.var(x, axis=axis, keepdims=keepdims)


def std(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return np.std(x, axis=axis, keepdims=keepdims)


def max(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _max(x, axis=axis, keepdims=keepdims)


def min(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _min(x, axis=axis, keepdims=keepdims)


def argmax(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    array: Any = np.asarray(x)
    return array.argmax(axis=axis, keepdims=keepdims)  # for one row, half the time of np.argmax


def norm(x: Tensor) -> Tensor:
    return np.sqrt(np.sum(np.square(x)))


def cumulative_sum(x: Tensor, axis: int = -1) -> Tensor:
    return np.cumsum(x, axis=axis, dtype=_dtype_of_sums(x))


def sort(x: Tensor, axis: int = -1) -> Tensor:
    return np.sort(x, axis=axis)


def _dtype_of_sums(x: Tensor) -> Any:
    """That of `x`, where numpy would widen integers; bools, which must be cast first, are counted."""
    return x.dtype if x.dtype.kind in "iu" else None


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return np.exp(log_softmax(x, axis))


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    shifted = x - max(x, axis=axis, keepdims=True)
    return shifted - np.log(sum(np.exp(shifted), axis=axis, keepdims=True))


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    largest = max(x, axis=axis, keepdims=True)
    result = largest + np.log(sum(np.exp(x - largest), axis=axis, keepdims=True))
    return result if keepdims else np.squeeze(result, axis)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    return np.matmul(x, y)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return np.matmul(x, weight) + (bias if weight.ndim == 2 else bias[:, None])


def conv2d(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    patches = np.lib.stride_tricks.sliding_window_view(x, weight.shape[:2], axis=(1, 2))
    return np.tensordot(patches[:, ::stride, ::stride], weight, ((4, 5, 3), (0, 1, 2)))


def one_hot(indices: Tensor, depth: int) -> Tensor:
    return np.asarray(indices[..., None] == np.arange(depth), dtype=np.float32)


def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return np.take(x, indices, axis=axis)


def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
    if x.ndim == indices.ndim == 2 and axis in (-1, 1):  # a fifth of the time of np.take_along_axis
        return x[np.arange(len(x))[:, None], indices]
    return np.take_along_axis(x, indices, axis=axis)


def reshape(x: Tensor, shape: Shape) -> Tensor:
    return np.reshape(x, shape)


def permute_dims(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return np.transpose(x, axes)


def flip(x: Tensor, axis: int) -> Tensor:
    return np.flip(x, axis)


def expand_dims(x: Tensor, axis: int) -> Tensor:
    return x[..., None] if axis == -1 else np.expand_dims(x, axis)


def squeeze(x: Tensor, axis: int) -> Tensor:
    return x.squeeze(axis)


def stack(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    return np.stack(xs, axis)


def concat(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    return np.concatenate(xs, axis)


def split(x: Tensor, sizes: Sequence[int], axis: int = 0) -> Sequence[Tensor]:
    # By slices: np.split takes several times as long.
    before = (slice(None),) * (axis % x.ndim)
    return [x[(*before, slice(end - size, end))] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def broadcast_to(x: Tensor, shape: Shape) -> Tensor:
    repeated = np.empty(
        shape, np.asarray(x).dtype
    )  # for a few numbers, a quarter of the time of np.broadcast_to
    repeated[...] = x
    return repeated


def shape(x: Tensor) -> Shape:
    return x.shape if isinstance(x, np.ndarray) else np.shape(x)


def zeros_like(x: Tensor) -> Tensor:
    return np.zeros(x.shape, x.dtype) if isinstance(x, np.ndarray) else np.zeros_like(x)


def ones_like(x: Tensor) -> Tensor:
    return np.ones_like(x)


def zeros(shape: Shape, dtype: str = "float32") -> Tensor:
    return np.zeros(shape, dtype)


def ones(shape: Shape, dtype: str = "float32") -> Tensor:
    return np.ones(shape, dtype)


def asarray(x: Any, dtype: str | None = None) -> Tensor:
    array = np.asarray(x, dtype)
    python_floats = dtype is None and array.dtype == np.float64 and not hasattr(x, "dtype")
    return array.astype(np.float32) if python_floats else array


def cast(x: Tensor, dtype: str) -> Tensor:
    return np.asarray(x, dtype)


def stop_gradient(x: Tensor) -> Tensor:
    return x


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, reverse: bool = False
) -> tuple[Any, Any]:
    carry, ys = init, []
    entries = list(zip(*xs, strict=True) if isinstance(xs, tuple) else xs)
    for x in reversed(entries) if reverse else entries:
        carry, y = f(carry, x)
        ys.append(y)
    if reverse:
        ys.reverse()
    if isinstance(ys[0], tuple):
        return carry, tuple(np.stack(parts) for parts in zip(*ys, strict=True))
    return carry, np.stack(ys)
