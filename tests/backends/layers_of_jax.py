"""flax's own layers with the weights of built-in networks."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from flax import nnx


def recurrent(
    kind: str, weights: Mapping[str, np.ndarray], x: np.ndarray, state: Sequence[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The outputs [B, T, cells] and the last state of nnx.OptimizedLSTMCell or nnx.GRUCell."""
    cells, width = weights["recurrent_weight"].shape
    cell = (nnx.OptimizedLSTMCell if kind == "lstm" else nnx.GRUCell)(x.shape[-1], cells, rngs=nnx.Rngs(0))
    # flax's LSTM has the candidate before the output gate; its GRU has no bias of the state unless it is given a layer.
    order = np.r_[: 2 * cells, 3 * cells : 4 * cells, 2 * cells : 3 * cells] if kind == "lstm" else np.s_[:]
    if kind == "gru":
        cell.dense_h = nnx.Linear(cells, width, rngs=nnx.Rngs(0))
        of_state = np.concatenate([np.zeros(2 * cells, np.float32), weights["recurrent_bias"]])
        cell.dense_i.bias.set_value(jnp.asarray(weights["bias"]))
    else:
        of_state = weights["bias"][order]
    cell.dense_i.kernel.set_value(jnp.asarray(weights["input_weight"][:, order]))
    cell.dense_h.kernel.set_value(jnp.asarray(weights["recurrent_weight"][:, order]))
    cell.dense_h.bias.set_value(jnp.asarray(of_state))
    first = tuple(map(jnp.asarray, reversed(state)))  # flax: the cells, then the output
    last, outputs = nnx.RNN(cell, return_carry=True)(
        jnp.asarray(x), initial_carry=first if kind == "lstm" else first[0]
    )
    return np.asarray(outputs), [np.asarray(each) for each in (reversed(last) if kind == "lstm" else (last,))]


def layer_norm(weight: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The outputs of nnx.LayerNorm."""
    layer = nnx.LayerNorm(x.shape[-1], epsilon=1e-5, rngs=nnx.Rngs(0))
    layer.scale.set_value(jnp.asarray(weight))
    layer.bias.set_value(jnp.asarray(bias))
    return np.asarray(layer(jnp.asarray(x)))
