"""Keras' own layers with the weights of built-in networks."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf


def recurrent(
    kind: str, weights: Mapping[str, np.ndarray], x: np.ndarray, state: Sequence[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The outputs [B, T, cells] and the last state of Keras' LSTM or GRU."""
    cells = len(weights["recurrent_weight"])
    settings = {"return_sequences": True, "return_state": True}
    gates = [slice(n * cells, (n + 1) * cells) for n in range(4)]
    if kind == "lstm":  # Keras: input gate, forget gate, candidate, output gate
        layer, order = tf.keras.layers.LSTM(cells, **settings), np.r_[gates[0], gates[1], gates[3], gates[2]]
        bias = weights["bias"][order]
    else:  # Keras: update gate, reset gate, candidate; the second row of biases belongs to the state
        layer, order = (
            tf.keras.layers.GRU(cells, reset_after=True, **settings),
            np.r_[gates[1], gates[0], gates[2]],
        )
        of_state = np.concatenate([np.zeros(2 * cells, np.float32), weights["recurrent_bias"]])
        bias = np.stack([weights["bias"][order], of_state])
    layer.build((None, None, x.shape[-1]))
    layer.set_weights([weights["input_weight"][:, order], weights["recurrent_weight"][:, order], bias])
    outputs, *last = layer(x, initial_state=list(state))
    return outputs.numpy(), [each.numpy() for each in last]


def layer_norm(weight: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The outputs of Keras' LayerNormalization."""
    layer = tf.keras.layers.LayerNormalization(epsilon=1e-5)
    layer.build(x.shape)
    layer.set_weights([weight, bias])
    return layer(x).numpy()
