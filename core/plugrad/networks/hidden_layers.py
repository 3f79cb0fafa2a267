"""`HiddenLayers`: the dense hidden layers of the built-in networks."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from plugrad.networks.layers import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    Parameter,
    dense,
    layer_norm,
    layer_norm_parameters,
    layer_parameters,
)
from plugrad.ops import Ops
from plugrad.types import Tensor


class HiddenLayers:
    """Dense layers, each followed by a layer norm if `layer_norm` is set, and by an activation.

    Parameters of layer `<i>`: `<name>.<i>.weight` and `<name>.<i>.bias`, then `<name>.<i>.norm.weight` and
    `<name>.<i>.norm.bias` if there is a layer norm.

    Sources of the layer norm before the activation: Ba, Kiros and Hinton 2016, arXiv:1607.06450, equation 4; in
    critics, Hiraoka et al. 2022, arXiv:2110.02034, figure 1.

    Args:
        inputs: number of inputs.
        config: a complete `model_config`; reads `fcnet_hiddens`, `fcnet_activation`, `layer_norm` and `ortho_init`.

    Attributes:
        width: number of outputs.
    """

    def __init__(self, inputs: int, config: Mapping[str, Any]) -> None:
        self._widths = (inputs, *config["fcnet_hiddens"])
        self._activation = config["fcnet_activation"]
        self._layer_norm = config["layer_norm"]
        self._ortho_init = config["ortho_init"]
        self.width: int = self._widths[-1]

    def __len__(self) -> int:
        return len(self._widths) - 1

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters under a name."""
        parameters = []
        for n, widths in enumerate(pairwise(self._widths)):
            layer = f"{name}.{n}"
            parameters += layer_parameters(layer, widths, HIDDEN_GAIN, ortho_init=self._ortho_init)
            parameters += layer_norm_parameters(f"{layer}.norm", widths[1]) if self._layer_norm else []
        return parameters

    def forward(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        """Compute the last layer's outputs.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            name: the prefix of the parameters' names.
            x: [..., inputs].

        Returns:
            [..., width].
        """
        activate = ACTIVATIONS[self._activation](ops)
        for n in range(len(self._widths) - 1):
            x = dense(ops, weights, f"{name}.{n}", x)
            x = layer_norm(ops, weights, f"{name}.{n}.norm", x) if self._layer_norm else x
            x = activate(x)
        return x
