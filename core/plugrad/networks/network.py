"""`Network`: a neural network written once over ops, for every backend."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.distributions import Distribution, distribution_class
from plugrad.errors import ConfigError
from plugrad.networks.layers import Parameter
from plugrad.ops import Ops
from plugrad.types import Array, Tensor


class Network(ABC):
    """The parameters of a network, and the function that it computes over ops.

    For your own network, derive from it and return it from the hook `build_network`. A backend makes an RLModule from
    it that holds the weights; numpy ops run the same function for acting. Weights are (in, out), those of convolutions
    (kernel, kernel, in, out). Flat vectors and checkpoints use the names and the order of the parameters.

    Attributes:
        parameters: all parameters, in canonical order; set by the subclass.
        acts_in_numpy: whether acting runs in numpy, which is faster than a framework's call for small dense layers and
            slower for convolutions.
        action_space: space of one action; set when a module is made from the network.
    """

    parameters: tuple[Parameter, ...]
    acts_in_numpy: bool = True
    action_space: gym.Space[Any] | None = None

    def initial_weights(self, rng: np.random.Generator) -> dict[str, Array]:
        """Draw the weights, in the order of `parameters`: `{name: float32 array}`."""
        return {each.name: each.init(rng, each.shape, each.scale) for each in self.parameters}

    def initial_state(self) -> dict[str, Array]:
        """The recurrent state at the start of an episode: `{name: float32 array}`; empty for a network without one."""
        return {}

    def distribution_class(self, action_space: gym.Space[Any], ops: Ops) -> type[Distribution]:
        """The class of the action distribution that takes ACTION_DIST_INPUTS; by default the action space's.

        Acting and losses use it: a module's `get_train_action_dist_cls` returns it. Override it for a network whose
        outputs have another meaning:

            def distribution_class(self, action_space, ops):
                return squashed_gaussian_class(action_space, ops)

        Args:
            action_space: space of one action.
            ops: the tensor functions that the class computes with.

        Returns:
            A class that takes ACTION_DIST_INPUTS, such as one from `plugrad.distributions.distribution_class`.

        Raises:
            ConfigError: there is no distribution for this space.
        """
        return distribution_class(action_space, ops)

    def distribution(self, ops: Ops, outputs: Tensor) -> Distribution:
        """The action distributions for outputs of this network, of the class `distribution_class`.

        Args:
            ops: tensor functions.
            outputs: ACTION_DIST_INPUTS [..., inputs].

        Returns:
            A batch of distributions [...].

        Raises:
            ConfigError: no module was made from the network, or there is no distribution for its action space.
            BatchError: the last dimension is not the number of inputs.
        """
        if self.action_space is None:
            raise ConfigError(f"{type(self).__name__} has no action_space: no module was made of it")
        return self.distribution_class(self.action_space, ops).from_logits(outputs)

    @abstractmethod
    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Compute the columns of a batch. Compiled update modes trace this method.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            batch: `{column: tensor}`, at least OBS [B, ...]. With a recurrent state these are sequences; see
                `RLModule.get_initial_state`.
            value: whether to compute also what acting does not need, such as VF_PREDS.

        Returns:
            `{column: tensor}`, at least ACTION_DIST_INPUTS [B, inputs]; with a recurrent state also STATE_OUT.
        """
