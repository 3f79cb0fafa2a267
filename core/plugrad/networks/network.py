"""Network: a neural network written once over ops, for every backend."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.networks.layers import Parameter
from plugrad.ops import Ops
from plugrad.types import Array, Tensor


class Network(ABC):
    """The parameters of a network, and the function that it computes over ops.

    Derive from it for a network of your own, and return it in the hook `build_network`. A backend makes an RLModule of
    it that holds the weights; numpy ops run the same function for acting. Weights are (in, out), those of convolutions
    (kernel, kernel, in, out). Names and order of the parameters are those of flat vectors and checkpoints.

    Attributes:
        parameters: all parameters, in canonical order; set by the subclass.
        acts_in_numpy: whether acting runs in numpy, which is faster than a framework's call for small dense layers and
            slower for convolutions.
    """

    parameters: tuple[Parameter, ...]
    acts_in_numpy: bool = True

    def initial_weights(self, rng: np.random.Generator) -> dict[str, Array]:
        """Draw the weights, in the order of `parameters`: `{name: float32 array}`."""
        return {each.name: each.init(rng, each.shape, each.scale) for each in self.parameters}

    def initial_state(self) -> dict[str, Array]:
        """The recurrent state at the start of an episode: `{name: float32 array}`; empty for a network without one."""
        return {}

    @abstractmethod
    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Compute the columns of a batch. Compiled update modes trace this method.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            batch: `{column: tensor}`, at least OBS [B, ...]. With a state these are sequences; see
                `RLModule.get_initial_state`.
            value: whether to compute also what acting greedily does not need, such as VF_PREDS.

        Returns:
            `{column: tensor}`, at least ACTION_DIST_INPUTS [B, inputs]; with a state also STATE_OUT.
        """
