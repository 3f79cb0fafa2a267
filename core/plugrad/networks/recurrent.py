"""`RecurrentLayer`: the LSTM or GRU that follows an encoder, over ops."""

from collections.abc import Mapping
from math import sqrt
from typing import Any, TypeAlias

import numpy as np

from plugrad.errors import ConfigError
from plugrad.networks import initializers
from plugrad.networks.layers import Parameter
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

SWITCHES = ("use_lstm", "use_gru")
"""The settings of `model_config` that make a network recurrent."""


class RecurrentLayer:
    """An LSTM or a GRU, which may be used under several names with separate weights.

    Parameters: `<name>.lstm.*` or `<name>.gru.*`.

    Args:
        kind: "lstm" or "gru".
        inputs: number of inputs.
        cells: number of cells, which is also the number of outputs.
        ortho_init: see `lstm_parameters` and `gru_parameters`.
    """

    def __init__(self, kind: str, inputs: int, cells: int, *, ortho_init: bool) -> None:
        self.state_names = ("h", "c") if kind == "lstm" else ("h",)
        self.width = cells
        self._kind, self._inputs, self._ortho_init = kind, inputs, ortho_init

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters under a name."""
        make = lstm_parameters if self._kind == "lstm" else gru_parameters
        return make(f"{name}.{self._kind}", self._inputs, self.width, ortho_init=self._ortho_init)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Apply the layer to sequences.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            name: the prefix of the parameters' names.
            x: [B, T, inputs].
            state: the state before the first step, [B, cells] for each of `state_names`.

        Returns:
            The outputs [B, T, cells], and the state after the last step.
        """
        apply = lstm if self._kind == "lstm" else gru
        return apply(ops, weights, f"{name}.{self._kind}", x, state)


def recurrent_layer(config: Mapping[str, Any], inputs: int) -> RecurrentLayer | None:
    """The recurrent layer for `use_lstm` or `use_gru`.

    Args:
        config: a complete `model_config`.
        inputs: number of inputs.

    Returns:
        The layer; None if there is none.

    Raises:
        ConfigError: both settings are set.
    """
    kinds = [switch.removeprefix("use_") for switch in SWITCHES if config[switch]]
    if len(kinds) > 1:
        raise ConfigError(f"{' and '.join(SWITCHES)} are both set: give model_config one of them")
    if not kinds:
        return None
    cells = config[f"{kinds[0]}_cell_size"]
    return RecurrentLayer(kinds[0], inputs, cells, ortho_init=config["ortho_init"])


def refuse_recurrence(config: Mapping[str, Any], who: str) -> None:
    """Refuse `use_lstm` and `use_gru`.

    Args:
        config: a complete `model_config`.
        who: the algorithm that has no recurrent networks, such as "DQN".

    Raises:
        ConfigError: one of them is set.
    """
    for switch in SWITCHES:
        if config[switch]:
            raise ConfigError(f"{who} has no recurrent networks: leave {switch} out of model_config")


# --- the LSTM ---
#
# Its parameters are `<name>.input_weight` (in, 4 cells), `<name>.recurrent_weight` (cells, 4 cells) and `<name>.bias`
# (4 cells). The columns of each belong to the input gate, the forget gate, the output gate and the candidate, in this
# order.

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


# --- the GRU ---
#
# Its parameters are `<name>.input_weight` (in, 3 cells), `<name>.recurrent_weight` (cells, 3 cells), `<name>.bias`
# (3 cells) and `<name>.recurrent_bias` (cells). The columns of the first three belong to the reset gate, the update
# gate and the candidate, in this order. The recurrent bias is only for the candidate: for a gate it would only add to
# `bias`.


def gru_parameters(name: str, inputs: int, cells: int, *, ortho_init: bool = True) -> list[Parameter]:
    """The parameters of a GRU: zero biases, and orthogonal weights.

    Args:
        name: the layer's name.
        inputs: number of inputs.
        cells: number of cells.
        ortho_init: False: weights are uniform within 1 / sqrt(cells), the default of torch.nn.GRU.

    Returns:
        `input_weight`, `recurrent_weight`, `bias` and `recurrent_bias`.
    """
    init, scale = (initializers.orthogonal, 1.0) if ortho_init else (initializers.uniform, 1.0 / sqrt(cells))
    return [
        Parameter(f"{name}.input_weight", (inputs, 3 * cells), init, scale),
        Parameter(f"{name}.recurrent_weight", (cells, 3 * cells), init, scale),
        Parameter(f"{name}.bias", (3 * cells,), initializers.constant, 0.0),
        Parameter(f"{name}.recurrent_bias", (cells,), initializers.constant, 0.0),
    ]


def gru(
    ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor, state: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Apply a GRU to sequences.

        r, z = sigmoid(x_t U + h W + b)         n = tanh(x_t U + b + r (h W + b_h))
        h = (1 - z) n + z h

    Source: Cho et al. 2014, arXiv:1406.1078, equations 5 to 8. The reset gate is applied after the product with W, as
    in the first version of the paper, torch.nn.GRU and Keras' GRU(reset_after=True), so that a step is one product.

    Args:
        ops: tensor functions.
        weights: `{parameter name: tensor}`.
        name: the layer's name.
        x: [B, T, in].
        state: `(h,)` before the first step, [B, cells].

    Returns:
        The outputs [B, T, cells], and the state after the last step.
    """
    recurrent, recurrent_bias = weights[f"{name}.recurrent_weight"], weights[f"{name}.recurrent_bias"]
    cells = ops.shape(recurrent)[0]
    # The part that does not depend on the state is one product for all steps.
    inputs = ops.linear(x, weights[f"{name}.input_weight"], weights[f"{name}.bias"])

    def step(h: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        of_input, of_candidate = ops.split(inputs, (2 * cells, cells), -1)
        of_state, remembered = ops.split(ops.matmul(h, recurrent), (2 * cells, cells), -1)
        r, z = ops.split(ops.sigmoid(of_input + of_state), (cells, cells), -1)
        candidate = ops.tanh(of_candidate + r * (remembered + recurrent_bias))
        h = candidate + z * (h - candidate)
        return h, h

    last, outputs = ops.scan(step, state[0], ops.permute_dims(inputs, (1, 0, 2)))
    return ops.permute_dims(outputs, (1, 0, 2)), (last,)
