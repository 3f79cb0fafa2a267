"""The LSTM of the built-in networks, over ops.

Its parameters are `<name>.input_weight` (in, 4 cells), `<name>.recurrent_weight` (cells, 4 cells) and `<name>.bias`
(4 cells). The columns of each belong to the input gate, the forget gate, the output gate and the candidate, in this
order.
"""

from collections.abc import Mapping
from math import sqrt
from typing import TypeAlias

import numpy as np

from plugrad.networks import initializers
from plugrad.networks.layers import Parameter
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

State: TypeAlias = tuple[Tensor, Tensor]
"""`(h, c)`: the last output and the cell state, [B, cells] each."""

FORGET_BIAS = 1.0
"""Initial bias of the forget gates, so that a new network remembers.

Source: Gers, Schmidhuber and Cummins 2000, doi:10.1162/089976600300015015, section 4.
"""


def lstm_parameters(name: str, inputs: int, cells: int, *, ortho_init: bool = True) -> list[Parameter]:
    """The parameters of an LSTM: zero biases, except `FORGET_BIAS` for the forget gates, and orthogonal weights.

    Args:
        name: the layer's name.
        inputs: number of inputs.
        cells: number of cells.
        ortho_init: False: weights are uniform within 1 / sqrt(cells), the default of torch.nn.LSTM.

    Returns:
        `input_weight`, `recurrent_weight` and `bias`.
    """
    init, scale = (initializers.orthogonal, 1.0) if ortho_init else (initializers.uniform, 1.0 / sqrt(cells))
    return [
        Parameter(f"{name}.input_weight", (inputs, 4 * cells), init, scale),
        Parameter(f"{name}.recurrent_weight", (cells, 4 * cells), init, scale),
        Parameter(f"{name}.bias", (4 * cells,), _forget_bias, FORGET_BIAS),
    ]


def _forget_bias(rng: np.random.Generator, shape: tuple[int, ...], value: float) -> Array:
    """The initializer of the bias."""
    cells = shape[0] // 4
    bias = np.zeros(shape, np.float32)
    bias[cells : 2 * cells] = value
    return bias


def lstm(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor, state: State) -> tuple[Tensor, State]:
    """Apply an LSTM to sequences.

        i, f, o = sigmoid(x_t U + h W + b)      g = tanh(x_t U + h W + b)
        c = f c + i g                           h = o tanh(c)

    Sources: Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735; the forget gate of Gers, Schmidhuber and
    Cummins 2000, doi:10.1162/089976600300015015, equations 3 to 8. There are no peepholes.

    Args:
        ops: tensor functions.
        weights: `{parameter name: tensor}`.
        name: the layer's name.
        x: [B, T, in].
        state: the state before the first step.

    Returns:
        The outputs [B, T, cells], and the state after the last step.
    """
    recurrent = weights[f"{name}.recurrent_weight"]
    cells = ops.shape(recurrent)[0]
    # The part that does not depend on the state is one product for all steps.
    inputs = ops.linear(x, weights[f"{name}.input_weight"], weights[f"{name}.bias"])

    def step(carry: State, inputs: Tensor) -> tuple[State, Tensor]:
        h, c = carry
        gates, candidate = ops.split(inputs + ops.matmul(h, recurrent), (3 * cells, cells), -1)
        i, f, o = ops.split(ops.sigmoid(gates), (cells, cells, cells), -1)
        c = f * c + i * ops.tanh(candidate)
        h = o * ops.tanh(c)
        return (h, c), h

    last, outputs = ops.scan(step, state, ops.permute_dims(inputs, (1, 0, 2)))
    return ops.permute_dims(outputs, (1, 0, 2)), last
