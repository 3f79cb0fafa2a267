"""`Encoder`: the layers from observations to features: an input part, such as convolutions, then `HiddenLayers`."""

from collections.abc import Collection, Mapping
from typing import Any

import gymnasium as gym

from plugrad.networks.inputs import array_input, image_input, joined_input
from plugrad.networks.layers import HiddenLayers, Parameter
from plugrad.ops import Ops
from plugrad.spaces.kinds import array_space, is_structured
from plugrad.spaces.layout import without_keys
from plugrad.types import Tensor


class Encoder:
    """Hidden layers for an observation space. A network may use one encoder under several names with separate weights.

    Observations of a Box are cast to float32, and uint8 ones are also scaled to [0, 1]; those of Discrete and
    MultiDiscrete become one-hot. In a Dict or Tuple, images are convolved, and their features are concatenated with all
    other numbers.

    Args:
        space: space of one observation: Box, Discrete, MultiDiscrete [n] or MultiBinary, or a Dict or Tuple of these.
        config: a complete `model_config`; reads `conv_filters`, `conv_activation`, `ortho_init` and the settings of
            `HiddenLayers`.
        without: keys of a Dict whose parts are not read.

    Attributes:
        filters: (out channels, kernel, stride) of each convolution; empty if there are none.
        width: number of features.

    Raises:
        ConfigError: the space or a setting is not supported.
    """

    def __init__(
        self, space: gym.Space[Any] | None, config: Mapping[str, Any], *, without: Collection[str] = ()
    ) -> None:
        if without:
            without_keys(space, without)  # refuses what cannot be left out
        if space is not None and is_structured(space):
            self._input = joined_input(space, config, without=without)
        else:
            space = array_space(space)
            numbers = array_input(space)
            self._input = numbers if space is None else image_input(space, config) or numbers
        self.filters = self._input.filters
        self._hidden = HiddenLayers(self._input.width, config)
        self.width = self._hidden.width

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters under a name: those of the input part, such as `<name>.conv.<i>.*`, then `<name>.<i>.*`."""
        return [*self._input.parameters(name), *self._hidden.parameters(name)]

    def prepare(self, ops: Ops, obs: Tensor) -> Any:
        """Convert observations for the first layer.

        Args:
            ops: tensor functions.
            obs: observations [B, ...] or [B, T, ...] of the space; rows for a Dict or Tuple.

        Returns:
            The argument of `features`: float32, one-hot or scaled; flat [..., inputs] unless there are convolutions.
        """
        return self._input.prepare(ops, obs)

    def features(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Any) -> Tensor:
        """Compute the features of prepared observations.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            name: the prefix of the parameters' names.
            x: what `prepare` returned.

        Returns:
            float32 [..., width].
        """
        return self._hidden.forward(ops, weights, name, self._input.compute(ops, weights, name, x))
