"""`Ops` with TensorFlow, eager, in a graph or under XLA. Each function is documented in `plugrad.ops.Ops`.

The twin of `plugrad_torch/ops.py`: the same functions in the same order, and the same gradient at every kink.
"""

# ruff: noqa: D103
# Names of the Array API hide builtins here: below, `abs`, `max`, `min` and `sum` are this module's.

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from plugrad import numpy_ops
from plugrad.ops import Axis, Shape
from plugrad.types import Tensor
from plugrad_tf2.convolutions import product_of_patches
from plugrad_tf2.without_xla import xla_compiles

_LANES = 256


def exp(x: Tensor) -> Tensor:
    return tf.exp(x)


def log(x: Tensor) -> Tensor:
    return tf.math.log(x)


def log1p(x: Tensor) -> Tensor:
    return tf.math.log1p(x)


def expm1(x: Tensor) -> Tensor:
    return tf.math.expm1(x)


def sqrt(x: Tensor) -> Tensor:
    return tf.sqrt(x)


def square(x: Tensor) -> Tensor:
    return tf.square(x)


def abs(x: Tensor) -> Tensor:
    return tf.abs(x)


def sign(x: Tensor) -> Tensor:
    return tf.sign(x)


def power(x: Tensor, y: Tensor) -> Tensor:
    return x**y  # not tf.pow: in a graph its first argument decides the dtype, even a number


def minimum(x: Tensor, y: Tensor) -> Tensor:
    return tf.minimum(x, y)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    return tf.maximum(x, y)


def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    above = x if min is None else tf.maximum(x, min)
    return above if max is None else tf.minimum(above, max)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if isinstance(x, int | float):
        x = tf.constant(x, y.dtype)  # in a graph the first argument decides, and 1.0 would be float32
    return tf.where(condition, x, y)


def isfinite(x: Tensor) -> Tensor:
    return tf.math.is_finite(x)


def logical_and(x: Tensor, y: Tensor) -> Tensor:
    return tf.logical_and(x, y)


def logical_or(x: Tensor, y: Tensor) -> Tensor:
    return tf.logical_or(x, y)


def logical_not(x: Tensor) -> Tensor:
    return tf.logical_not(x)


def softplus(x: Tensor) -> Tensor:
    return tf.math.softplus(x)


def sigmoid(x: Tensor) -> Tensor:
    return tf.sigmoid(x)


def tanh(x: Tensor) -> Tensor:
    return tf.tanh(x)


def atanh(x: Tensor) -> Tensor:
    return tf.atanh(x)


def erf(x: Tensor) -> Tensor:
    return tf.math.erf(x)


def relu(x: Tensor) -> Tensor:
    return tf.nn.relu(x)


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    size = tf.abs(x)
    inside = tf.minimum(size, delta)
    return 0.5 * inside * inside + delta * (size - inside)


def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _total(x) if axis is None and not keepdims else tf.reduce_sum(x, axis, keepdims)


def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return tf.reduce_mean(x, axis, keepdims)


def var(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return tf.math.reduce_variance(x, axis, keepdims)


def std(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _root(tf.math.reduce_variance(x, axis, keepdims))


def max(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return tf.reduce_max(x, axis, keepdims)


def min(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return tf.reduce_min(x, axis, keepdims)


def argmax(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    if axis is None:
        index = tf.argmax(tf.reshape(x, (-1,)), 0)
        return tf.reshape(index, (1,) * len(x.shape)) if keepdims else index
    index = tf.argmax(x, axis)
    return tf.expand_dims(index, axis) if keepdims else index


def norm(x: Tensor) -> Tensor:
    return _root(_total(tf.square(x)))


def _total(x: Tensor) -> Tensor:
    """The sum of all entries; a long vector by columns, which XLA on the CPU sums side by side, not one by one."""
    size = x.shape[0] if x.shape.rank == 1 else None
    if size is None or size < 4 * _LANES:
        return tf.reduce_sum(x)
    whole = size - size % _LANES
    columns = tf.reduce_sum(tf.reshape(x[:whole], [-1, _LANES]), 0)
    return tf.reduce_sum(columns) + tf.reduce_sum(x[whole:])


def _root(x: Tensor) -> Tensor:
    """Square root with gradient 0 at 0, as in torch's norm and std; through tf.sqrt it would be NaN."""
    zero = tf.equal(x, 0)
    return tf.where(zero, x, tf.sqrt(tf.where(zero, tf.ones_like(x), x)))


def cumulative_sum(x: Tensor, axis: int = -1) -> Tensor:
    return tf.cumsum(x, axis)


def sort(x: Tensor, axis: int = -1) -> Tensor:
    return tf.sort(x, axis)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return tf.nn.softmax(x, axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return tf.nn.log_softmax(x, axis)


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    return tf.reduce_logsumexp(x, axis, keepdims)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    return tf.matmul(x, y)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if len(weight.shape) == 3:
        return tf.matmul(x, weight) + bias[:, None]
    if len(x.shape) == 2:
        return tf.matmul(x, weight) + bias
    return tf.tensordot(x, weight, 1) + bias  # one product of all rows; tf.matmul would repeat the weight


def conv2d(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    if tf.executing_eagerly() or not xla_compiles() or tf.config.list_physical_devices("GPU"):
        return tf.nn.conv2d(x, weight, stride, "VALID")
    return product_of_patches(x, weight, stride)


def one_hot(indices: Tensor, depth: int) -> Tensor:
    return tf.one_hot(indices, depth)


def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return tf.gather(x, indices, axis=axis)


def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
    last = len(x.shape) - 1
    if axis in (-1, last):
        picks_one = indices.shape[-1] == 1 and x.dtype.is_floating and (x.shape[-1] or _LANES + 1) <= _LANES
        return _pick(x, indices) if picks_one else tf.gather(x, indices, axis=last, batch_dims=last)
    order = [i for i in range(last + 1) if i != axis % (last + 1)] + [axis % (last + 1)]
    moved = take_along_axis(tf.transpose(x, order), tf.transpose(indices, order))
    return tf.transpose(moved, [order.index(i) for i in range(last + 1)])


def _pick(x: Tensor, index: Tensor) -> Tensor:
    """One entry of each short row. The gradient of a gather is a scatter, which XLA gives to a thread of its own."""
    chosen = tf.equal(tf.range(x.shape[-1], dtype=index.dtype), index)
    return tf.reduce_sum(tf.where(chosen, x, tf.zeros_like(x)), -1, keepdims=True)


def reshape(x: Tensor, shape: Shape) -> Tensor:
    return tf.reshape(x, shape)


def permute_dims(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return tf.transpose(x, axes)


def flip(x: Tensor, axis: int) -> Tensor:
    return tf.reverse(x, [axis])


def expand_dims(x: Tensor, axis: int) -> Tensor:
    return tf.expand_dims(x, axis)


def squeeze(x: Tensor, axis: int) -> Tensor:
    return tf.squeeze(x, axis)


def stack(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    return tf.stack(xs, axis)


def concat(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    return tf.concat(xs, axis)


def split(x: Tensor, sizes: Sequence[int], axis: int = 0) -> Sequence[Tensor]:
    return tuple(tf.split(x, list(sizes), axis))


def broadcast_to(x: Tensor, shape: Shape) -> Tensor:
    return tf.broadcast_to(x, shape)


def shape(x: Tensor) -> Shape:
    return tuple(x.shape)


def zeros_like(x: Tensor) -> Tensor:
    return tf.zeros_like(x)


def ones_like(x: Tensor) -> Tensor:
    return tf.ones_like(x)


def zeros(shape: Shape, dtype: str = "float32") -> Tensor:
    return tf.zeros(shape, dtype)


def ones(shape: Shape, dtype: str = "float32") -> Tensor:
    return tf.ones(shape, dtype)


def asarray(x: Any, dtype: str | None = None) -> Tensor:
    if isinstance(x, float) and dtype in (None, "float32"):
        return tf.constant(x, tf.float32)
    # `is_tensor` takes long to say no.
    if isinstance(x, np.ndarray | np.generic | float | int) or not tf.is_tensor(x):
        return tf.constant(numpy_ops.asarray(x, dtype))
    return x if dtype is None else cast(x, dtype)


def cast(x: Tensor, dtype: str) -> Tensor:
    return tf.cast(x, dtype)


def stop_gradient(x: Tensor) -> Tensor:
    return tf.stop_gradient(x)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, reverse: bool = False
) -> tuple[Any, Any]:
    # tf.scan wants to know what f returns before the loop: one call on the first entry tells the shapes of y.
    _, y = f(init, tf.nest.map_structure(lambda x: x[0], xs))
    blank = tf.nest.map_structure(tf.zeros_like, y)
    carries, ys = tf.scan(lambda before, x: f(before[0], x), xs, (init, blank), reverse=reverse)
    return tf.nest.map_structure(lambda carry: carry[0 if reverse else -1], carries), ys
