"""`Ops` with torch, eager or traced. Each function is documented in `plugrad.ops.Ops`.

The twin of `plugrad_tf2/ops.py`: the same functions in the same order, and the same gradient at every kink.
"""

# ruff: noqa: D103
# Names of the Array API hide builtins here: below, `abs`, `max`, `min` and `sum` are this module's.

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from plugrad import numpy_ops
from plugrad.ops import Axis, Shape


def exp(x: Tensor) -> Tensor:
    return torch.exp(x)


def log(x: Tensor) -> Tensor:
    return torch.log(x)


def log1p(x: Tensor) -> Tensor:
    return torch.log1p(x)


def expm1(x: Tensor) -> Tensor:
    return torch.expm1(x)


def sqrt(x: Tensor) -> Tensor:
    return torch.sqrt(x)


def square(x: Tensor) -> Tensor:
    return torch.square(x)


def abs(x: Tensor) -> Tensor:
    return torch.abs(x)


def sign(x: Tensor) -> Tensor:
    return torch.sign(x)


def power(x: Tensor, y: Tensor) -> Tensor:
    return torch.pow(x, y)


def minimum(x: Tensor, y: Tensor) -> Tensor:
    # Not torch.minimum: at a tie that one halves the gradient, and it takes no numbers.
    return torch.clamp_max(x, y)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    return torch.clamp_min(x, y)


def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    return torch.clamp(x, min, max)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)


def isfinite(x: Tensor) -> Tensor:
    return torch.abs(x) < torch.inf  # two kernels; torch.isfinite is five


def logical_and(x: Tensor, y: Tensor) -> Tensor:
    return torch.logical_and(x, y)


def logical_or(x: Tensor, y: Tensor) -> Tensor:
    return torch.logical_or(x, y)


def logical_not(x: Tensor) -> Tensor:
    return torch.logical_not(x)


def softplus(x: Tensor) -> Tensor:
    return functional.softplus(x)


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)


def atanh(x: Tensor) -> Tensor:
    return torch.atanh(x)


def erf(x: Tensor) -> Tensor:
    return torch.erf(x)


def relu(x: Tensor) -> Tensor:
    return torch.relu(x)


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    return functional.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)


def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.sum(x, axis, keepdims, dtype=_dtype_of_sums(x))


def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.mean(x, axis, keepdims)


def var(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.var(x, axis, correction=0, keepdim=keepdims)


def std(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.std(x, axis, correction=0, keepdim=keepdims)


def max(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.amax(x, () if axis is None else axis, keepdims)


def min(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.amin(x, () if axis is None else axis, keepdims)


def argmax(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    return torch.argmax(x, axis, keepdims)


def norm(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x)
    return length


def cumulative_sum(x: Tensor, axis: int = -1) -> Tensor:
    return torch.cumsum(x, axis, dtype=_dtype_of_sums(x))


def sort(x: Tensor, axis: int = -1) -> Tensor:
    return torch.sort(x, dim=axis).values


def _dtype_of_sums(x: Tensor) -> torch.dtype | None:
    """That of `x`, where torch would widen integers; bools, which must be cast first, are counted."""
    return None if x.dtype is torch.bool else x.dtype


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return torch.log_softmax(x, axis)


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    return torch.logsumexp(x, axis, keepdims)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    return torch.matmul(x, y)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.ndim == 3:
        return torch.baddbmm(bias.unsqueeze(1), x.expand(weight.shape[0], -1, -1), weight)
    if x.ndim == 2:
        return torch.addmm(bias, x, weight)  # one kernel instead of two
    return torch.matmul(x, weight) + bias


def conv2d(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    # Images that came as [channels, height, width] are not in this order in memory. Then oneDNN takes a third longer.
    channels_first = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    return functional.conv2d(channels_first, weight.permute(3, 2, 0, 1), stride=stride).permute(0, 2, 3, 1)


def one_hot(indices: Tensor, depth: int) -> Tensor:
    # Not functional.one_hot: that one reads the largest index back to the host, and wants int64.
    return (indices.unsqueeze(-1) == torch.arange(depth, device=indices.device)).to(torch.float32)


def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return torch.index_select(x, axis, indices)


def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
    return torch.gather(x, axis, indices)


def reshape(x: Tensor, shape: Shape) -> Tensor:
    return torch.reshape(x, shape)


def permute_dims(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return torch.permute(x, axes)


def flip(x: Tensor, axis: int) -> Tensor:
    return torch.flip(x, (axis,))


def expand_dims(x: Tensor, axis: int) -> Tensor:
    return torch.unsqueeze(x, axis)


def squeeze(x: Tensor, axis: int) -> Tensor:
    return torch.squeeze(x, axis)


def stack(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    return torch.stack(tuple(xs), axis)


def concat(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    return torch.cat(tuple(xs), axis)


def split(x: Tensor, sizes: Sequence[int], axis: int = 0) -> Sequence[Tensor]:
    return torch.split(x, list(sizes), axis)


def broadcast_to(x: Tensor, shape: Shape) -> Tensor:
    return torch.broadcast_to(x, shape)


def shape(x: Tensor) -> Shape:
    return tuple(x.shape)


def zeros_like(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


def ones_like(x: Tensor) -> Tensor:
    return torch.ones_like(x)


def zeros(shape: Shape, dtype: str = "float32") -> Tensor:
    return torch.zeros(shape, dtype=getattr(torch, dtype))


def ones(shape: Shape, dtype: str = "float32") -> Tensor:
    return torch.ones(shape, dtype=getattr(torch, dtype))


def asarray(x: Any, dtype: str | None = None) -> Tensor:
    if not isinstance(x, Tensor):
        # torch takes no negative strides, and warns about memory that it may not write.
        x = torch.from_numpy(np.require(numpy_ops.asarray(x, dtype), requirements=["C", "W"]))
    return x if dtype is None else cast(x, dtype)


def cast(x: Tensor, dtype: str) -> Tensor:
    wanted = getattr(torch, dtype)
    return x if x.dtype is wanted else x.to(wanted)


def stop_gradient(x: Tensor) -> Tensor:
    return x.detach() if x.requires_grad else x


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
        return carry, tuple(torch.stack(parts) for parts in zip(*ys, strict=True))
    return carry, torch.stack(ys)
