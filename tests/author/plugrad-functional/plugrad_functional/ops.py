"""The ops: JAX's own where they take the calls and have the gradients that `plugrad.ops` says."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy
from jax.dtypes import canonicalize_dtype

from plugrad.types import Tensor

jnp: Any = jax.numpy
nn: Any = jax.nn

exp, log, log1p, expm1 = jnp.exp, jnp.log, jnp.log1p, jnp.expm1
sqrt, square, sign, power = jnp.sqrt, jnp.square, jnp.sign, jnp.power
tanh, atanh, erf = jnp.tanh, jnp.arctanh, jax.scipy.special.erf
relu, sigmoid, softplus, softmax, log_softmax = nn.relu, nn.sigmoid, nn.softplus, nn.softmax, nn.log_softmax
where, isfinite = jnp.where, jnp.isfinite
logical_and, logical_or, logical_not = jnp.logical_and, jnp.logical_or, jnp.logical_not
matmul, take_along_axis = jnp.matmul, jnp.take_along_axis
reshape, permute_dims, flip, broadcast_to = jnp.reshape, jnp.permute_dims, jnp.flip, jnp.broadcast_to
expand_dims, squeeze, stack, concat = jnp.expand_dims, jnp.squeeze, jnp.stack, jnp.concatenate
shape, zeros_like, ones_like = jnp.shape, jnp.zeros_like, jnp.ones_like
stop_gradient: Any = jax.lax.stop_gradient


def over_axes(function: Any) -> Callable[..., Tensor]:
    def reduce(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        return function(x, axis=axis, keepdims=keepdims)

    return reduce


sum, mean, var, max, min = map(over_axes, (jnp.sum, jnp.mean, jnp.var, jnp.max, jnp.min))
argmax = over_axes(jnp.argmax)


def sort(x: Tensor, axis: int = -1) -> Tensor:
    return jnp.sort(x, axis)


def abs(x: Tensor) -> Tensor:
    """With gradient 0 at 0; that of `jnp.abs` is 1."""
    return x * sign(x)


def minimum(x: Tensor, y: Tensor) -> Tensor:
    """Where they are equal the whole gradient goes to `x`; `jnp.minimum` would halve it."""
    return where((x <= y) | (x != x), x, y)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    return where((x >= y) | (x != x), x, y)


def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    above = x if min is None else maximum(x, min)
    return above if max is None else minimum(above, max)


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    return where(abs(x) <= delta, 0.5 * square(x), delta * (abs(x) - 0.5 * delta))


def root(x: Tensor) -> Tensor:
    """With gradient 0 at 0, not infinity."""
    return where(x == 0, 0.0, sqrt(where(x == 0, 1.0, x)))


def norm(x: Tensor) -> Tensor:
    return root(sum(square(x)))


def std(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    return root(var(x, axis, keepdims))


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    return nn.logsumexp(x, axis=axis, keepdims=keepdims)


def cumulative_sum(x: Tensor, axis: int = -1) -> Tensor:
    return jnp.cumsum(x, axis)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return matmul(x, weight) + (bias if weight.ndim == 2 else bias[:, None])


def conv2d(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), "VALID", dimension_numbers=layout)


def one_hot(indices: Tensor, depth: int) -> Tensor:
    return nn.one_hot(indices, depth, dtype="float32")


def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return jnp.take(x, indices, axis)


def split(x: Tensor, sizes: Sequence[int], axis: int = 0) -> Sequence[Tensor]:
    return jax.lax.split(x, sizes, axis % x.ndim)


def asarray(x: Any, dtype: str | None = None) -> Tensor:
    return jnp.asarray(x, dtype and canonicalize_dtype(dtype))


def cast(x: Tensor, dtype: str) -> Tensor:
    return x.astype(canonicalize_dtype(dtype))


def zeros(shape: tuple[int, ...], dtype: str = "float32") -> Tensor:
    return jnp.zeros(shape, canonicalize_dtype(dtype))


def ones(shape: tuple[int, ...], dtype: str = "float32") -> Tensor:
    return jnp.ones(shape, canonicalize_dtype(dtype))


def scan(f: Callable[..., Any], init: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    return jax.lax.scan(f, init, xs, reverse=reverse)
