"""Layers of the built-in networks, over ops: their parameters and what they compute. Knows no spaces or settings.

A layer is known by its name, `pi.0`; its parameters are `pi.0.weight` and `pi.0.bias`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from plugrad.networks import initializers
from plugrad.ops import Ops, Shape
from plugrad.types import Array, Tensor

ACTIVATIONS: dict[str, Callable[[Ops], Callable[[Tensor], Tensor]]] = {
    "tanh": lambda ops: ops.tanh,
    "relu": lambda ops: ops.relu,
    "sigmoid": lambda ops: ops.sigmoid,
    "linear": lambda ops: lambda x: x,
}
HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN = sqrt(2.0), 0.01, 1.0
"""Orthogonal gains for PPO: Andrychowicz et al. 2021, arXiv:2006.05990, choices C56 and C57 (small initial policy)."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a network: its name, shape and how it is drawn."""

    name: str
    shape: tuple[int, ...]
    init: Callable[[np.random.Generator, Any, float], Array]
    scale: float


def layer_parameters(name: str, weight: Shape, gain: float) -> list[Parameter]:
    """Weight and bias of a dense layer, (in, out), or a convolution, (kernel, kernel, in, out)."""
    return [
        Parameter(f"{name}.weight", weight, initializers.orthogonal, gain),
        Parameter(f"{name}.bias", weight[-1:], initializers.constant, 0.0),
    ]


def dense(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """[..., in] to [..., out]."""
    return ops.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def convolution(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor, stride: int) -> Tensor:
    """[B, H, W, in] to [B, H', W', out], where the kernel fits."""
    return ops.conv2d(x, weights[f"{name}.weight"], stride) + weights[f"{name}.bias"]


def reshape_inner(ops: Ops, x: Tensor, rank: int, inner: Shape) -> Tensor:
    """The last `rank` dimensions as `inner`; the leading ones stay, and the first need not be known to a trace."""
    shape = ops.shape(x)
    leading = shape[: len(shape) - rank]
    return ops.reshape(x, ((-1, *leading[1:]) if leading else ()) + inner)
