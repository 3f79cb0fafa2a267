"""The GRU of the built-in networks, over ops.

Its parameters are `<name>.input_weight` (in, 3 cells), `<name>.recurrent_weight` (cells, 3 cells), `<name>.bias`
(3 cells) and `<name>.recurrent_bias` (cells). The columns of the first three belong to the reset gate, the update gate
and the candidate, in this order. The recurrent bias is only for the candidate: for a gate it would only add to `bias`.
"""

from collections.abc import Mapping
from math import sqrt

from plugrad.networks import initializers
from plugrad.networks.layers import Parameter
from plugrad.ops import Ops
from plugrad.types import Tensor


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
