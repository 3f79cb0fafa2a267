"""`Ops` with JAX, eager or traced. Each function is documented in `plugrad.ops.Ops`.

An op is JAX's own function where that takes the same arguments. Gradients at kinks are those of `plugrad.ops`.
"""

# ruff: noqa: D103
# Names of the Array API hide builtins here: below, `abs`, `max`, `min` and `sum` are this module's.

from collections.abc import Callable, Sequence
from typing import Any

import jax.nn
import jax.numpy
from jax.dtypes import canonicalize_dtype

from plugrad import numpy_ops
from plugrad.ops import Axis, Shape
from plugrad.types import Tensor
from plugrad_jax.versions import IS_CONCRETE

# Not typed: tensors have other names there.
jnp: Any = jax.numpy
lax: Any = jax.lax
nn: Any = jax.nn

_STEPS = 64
"""A loop outside a program that has more steps is a program of its own."""

exp, expm1, log, log1p = jnp.exp, jnp.expm1, jnp.log, jnp.log1p
power, sign, sqrt, square = jnp.power, jnp.sign, jnp.sqrt, jnp.square
isfinite, logical_and, logical_not, logical_or = (
    jnp.isfinite,
    jnp.logical_and,
    jnp.logical_not,
    jnp.logical_or,
)
atanh, erf, sigmoid, softplus, tanh = jnp.arctanh, lax.erf, nn.sigmoid, nn.softplus, jnp.tanh
log_softmax, matmul, softmax, where = nn.log_softmax, jnp.matmul, nn.softmax, jnp.where
expand_dims, flip, permute_dims, reshape = jnp.expand_dims, jnp.flip, jnp.permute_dims, jnp.reshape
broadcast_to, shape, squeeze, stack = jnp.broadcast_to, jnp.shape, jnp.squeeze, jnp.stack
concat = jnp.concatenate  # takes the axis by position, which jnp.concat refuses
ones_like, zeros_like, stop_gradient = jnp.ones_like, jnp.zeros_like, lax.stop_gradient


def abs(x: Tensor) -> Tensor:
    return x * sign(x)  # not jnp.abs, whose gradient at 0 is 1


def minimum(x: Tensor, y: Tensor) -> Tensor:
    # Not jnp.minimum: at a tie that one halves the gradient.
    return jnp.where((x <= y) | jnp.isnan(x), x, y)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    return jnp.where((x >= y) | jnp.isnan(x), x, y)


def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    above = x if min is None else maximum(x, min)
    return above if max is None else minimum(above, max)


def relu(x: Tensor) -> Tensor:
    return jnp.where(x <= 0, 0, x)


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    inside = minimum(abs(x), delta)
    return 0.5 * inside * inside + delta * (abs(x) - inside)


def _reduction(function: Any) -> Callable[..., Tensor]:
    def reduced(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return function(x, axis, keepdims=keepdims)

    return reduced


argmax, max, mean, min, var = map(_reduction, (jnp.argmax, jnp.max, jnp.mean, jnp.min, jnp.var))


def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return jnp.sum(x, axis, x.dtype, keepdims=keepdims)


def std(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return _root(var(x, axis, keepdims))


def norm(x: Tensor) -> Tensor:
    return _root(jnp.sum(square(x)))


def _root(x: Tensor) -> Tensor:
    """Square root with gradient 0 at 0, as in torch's norm and std; through jnp.sqrt it would be NaN."""
    is_zero = x == 0
    return where(is_zero, x, sqrt(where(is_zero, 1, x)))


def cumulative_sum(x: Tensor, axis: int = -1) -> Tensor:
    return jnp.cumsum(x, axis, x.dtype)


def sort(x: Tensor, axis: int = -1) -> Tensor:
    return jnp.sort(x, axis)


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    return nn.logsumexp(x, axis, keepdims=keepdims)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return matmul(x, weight) + (bias if weight.ndim == 2 else bias[:, None])


def conv2d(x: Tensor, weight: Tensor, stride: int, platform: str | None = None) -> Tensor:
    if isinstance(weight, jax.core.Tracer) and (platform or jax.default_backend()) == "cpu":
        return _product_of_patches(x, weight, stride)
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, weight, (stride, stride), "VALID", dimension_numbers=layout)


def _product_of_patches(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """A convolution as one product: in a loop on the CPU its gradient takes XLA a tenth of the convolution's time."""
    height, width, channels, outputs = weight.shape
    rows, columns = ((x.shape[n] - weight.shape[n - 1]) // stride + 1 for n in (1, 2))
    patches = [
        x[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(height)
        for j in range(width)
    ]
    matrix = reshape(concat(patches, -1), (-1, height * width * channels))
    return reshape(matmul(matrix, reshape(weight, (-1, outputs))), (-1, rows, columns, outputs))


def one_hot(indices: Tensor, depth: int) -> Tensor:
    return nn.one_hot(indices, depth, dtype="float32")


def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return jnp.take(x, indices, axis, mode="clip")


def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
    return jnp.take_along_axis(x, indices, axis, mode="clip")


def split(x: Tensor, sizes: Sequence[int], axis: int = 0) -> Any:
    return lax.split(x, sizes, axis % x.ndim)


def zeros(shape: Shape, dtype: str = "float32") -> Tensor:
    return jnp.zeros(shape, canonicalize_dtype(dtype))


def ones(shape: Shape, dtype: str = "float32") -> Tensor:
    return jnp.ones(shape, canonicalize_dtype(dtype))


def asarray(x: Any, dtype: str | None = None) -> Tensor:
    # Not jnp.asarray, which compiles a program for each shape.
    tensor = x if isinstance(x, jax.Array) else jax.device_put(numpy_ops.asarray(x, dtype))
    return tensor if dtype is None else cast(tensor, dtype)


def cast(x: Tensor, dtype: str) -> Tensor:
    return x.astype(canonicalize_dtype(dtype))


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, reverse: bool = False) -> Any:
    leaves, is_concrete = jax.tree.leaves((init, xs)), IS_CONCRETE.find()
    # JAX traces and lowers a loop whose function is new, as that of a layer is in each call: some 50 ms, and outside a
    # program each time. Its steps one by one are single operations, which are compiled once.
    one_by_one = is_concrete is not None and 0 < len(leaves[-1]) <= _STEPS and all(map(is_concrete, leaves))
    if not one_by_one:
        return lax.scan(f, init, xs, reverse=reverse)
    carry, ys = init, []
    entries = [
        jax.tree.unflatten(jax.tree.structure(xs), each)
        for each in zip(*map(jnp.unstack, jax.tree.leaves(xs)), strict=True)
    ]
    for x in reversed(entries) if reverse else entries:
        carry, y = f(carry, x)
        ys.append(y)
    return carry, jax.tree.map(lambda *parts: jnp.stack(parts), *(reversed(ys) if reverse else ys))
