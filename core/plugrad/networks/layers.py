"""Layers of the built-in networks, over ops: their parameters, and the functions that they compute.

A layer has a name, such as `pi.0`; its parameters are `pi.0.weight` and `pi.0.bias`.
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
"""Gains of `orthogonal` for hidden layers, policy heads and value heads.

Source: Andrychowicz et al. 2021, arXiv:2006.05990, choices C56 and C57 (small initial policy).
"""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a network.

    Args:
        name: such as `pi.0.weight`.
        shape: its shape.
        init: the initializer: `init(rng, shape, scale)` gives a float32 array.
        scale: the initializer's last argument, such as a gain.
    """

    name: str
    shape: tuple[int, ...]
    init: Callable[[np.random.Generator, Any, float], Array]
    scale: float


def layer_parameters(name: str, weight: Shape, gain: float) -> list[Parameter]:
    """The parameters of a dense layer or a convolution: an orthogonal weight, and a bias of zeros.

    Args:
        name: the layer's name.
        weight: the weight's shape: (in, out), or (kernel, kernel, in, out).
        gain: the gain of the orthogonal weight.

    Returns:
        `<name>.weight`, then `<name>.bias` (out,).
    """
    return [
        Parameter(f"{name}.weight", weight, initializers.orthogonal, gain),
        Parameter(f"{name}.bias", weight[-1:], initializers.constant, 0.0),
    ]


def dense(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Apply a dense layer.

    Args:
        ops: tensor functions.
        weights: `{parameter name: tensor}`.
        name: the layer's name.
        x: [..., in].

    Returns:
        [..., out].
    """
    return ops.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def convolution(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor, stride: int) -> Tensor:
    """Apply a convolution without padding.

    Args:
        ops: tensor functions.
        weights: `{parameter name: tensor}`.
        name: the layer's name.
        x: [B, H, W, in].
        stride: of height and width alike.

    Returns:
        [B, H', W', out]; `H' = (H - kernel) // stride + 1`, `W'` likewise.
    """
    return ops.conv2d(x, weights[f"{name}.weight"], stride) + weights[f"{name}.bias"]


def reshape_inner(ops: Ops, x: Tensor, rank: int, inner: Shape) -> Tensor:
    """Reshape the last dimensions; the length of the first leading one need not be known to a trace.

    Args:
        ops: tensor functions.
        x: [..., *last dimensions].
        rank: how many last dimensions there are.
        inner: their new shape.

    Returns:
        [..., *inner].
    """
    shape = ops.shape(x)
    leading = shape[: len(shape) - rank]
    return ops.reshape(x, ((-1, *leading[1:]) if leading else ()) + inner)
