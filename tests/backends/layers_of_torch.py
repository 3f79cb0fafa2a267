"""torch's own layers with the weights of built-in networks."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch


def recurrent(
    kind: str, weights: Mapping[str, np.ndarray], x: np.ndarray, state: Sequence[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The outputs [B, T, cells] and the last state of torch.nn.LSTM or torch.nn.GRU."""
    cells = len(weights["recurrent_weight"])
    layer = (torch.nn.LSTM if kind == "lstm" else torch.nn.GRU)(x.shape[-1], cells, batch_first=True)
    bias, of_state = weights["bias"], np.zeros_like(weights["bias"])
    if kind == "gru":
        of_state[2 * cells :] = weights["recurrent_bias"]
    # torch's LSTM has the candidate before the output gate; its GRU has the order of the built-in one.
    order = np.r_[: 2 * cells, 3 * cells : 4 * cells, 2 * cells : 3 * cells] if kind == "lstm" else np.s_[:]
    arrays = weights["input_weight"].T, weights["recurrent_weight"].T, bias, of_state
    with torch.no_grad():
        for parameter, array in zip(layer.parameters(), arrays, strict=True):
            parameter.copy_(torch.tensor(array[order]))
        first = [torch.tensor(each)[None] for each in state]
        outputs, last = layer(torch.tensor(x), tuple(first) if kind == "lstm" else first[0])
    return outputs.numpy(), [each[0].numpy() for each in (last if kind == "lstm" else (last,))]


def layer_norm(weight: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The outputs of torch.nn.LayerNorm."""
    layer = torch.nn.LayerNorm(x.shape[-1])
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
        return layer(torch.tensor(x)).numpy()
