"""The input part of an encoder: from observations to the numbers that its dense layers read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.errors import ConfigError
from plugrad.networks.conv_filters import Filters
from plugrad.networks.layers import Parameter, reshape_inner
from plugrad.ops import Ops
from plugrad.spaces.kinds import array_space, first_choice, is_array, is_one_hot, sizes_of_choices
from plugrad.types import Tensor


class Input(ABC):
    """What an encoder computes before its dense layers.

    Attributes:
        width: the number of outputs.
        filters: (out channels, kernel, stride) of each convolution; empty if there are none.
    """

    width: int
    filters: Filters = ()

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters under a name, in order."""
        return []

    @abstractmethod
    def prepare(self, ops: Ops, obs: Tensor) -> Any:
        """Convert observations, without weights.

        Args:
            ops: tensor functions.
            obs: observations [B, ...] or [B, T, ...] of the space; rows for a Dict or Tuple.

        Returns:
            The argument of `compute`.
        """

    def compute(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Any) -> Tensor:
        """Compute the outputs.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            name: the prefix of the parameters' names.
            x: what `prepare` returned.

        Returns:
            float32 [..., width].
        """
        return x


class VectorInput(Input):
    """Flattens numbers; uint8 numbers are scaled to [0, 1].

    Args:
        shape: shape of one observation.
        scale: the factor of the numbers; None: 1.
    """

    def __init__(self, shape: tuple[int, ...], scale: float | None) -> None:
        self._shape, self._scale = shape, scale
        self.width = prod(shape)

    def prepare(self, ops: Ops, obs: Tensor) -> Tensor:
        """Numbers as float32 [..., width]."""
        x = ops.cast(obs, "float32")  # observations of a Box may be integers
        if self._scale is not None:
            x = x * self._scale
        return x if len(self._shape) == 1 else reshape_inner(ops, x, len(self._shape), (self.width,))


class OneHotInput(Input):
    """The one-hot vectors of Discrete [B] or MultiDiscrete [B, n] observations, counted from the space's start.

    Args:
        space: one-hot, of no axis or one.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self._is_one = not space.shape
        self._sizes = sizes_of_choices(space) or ()
        self._starts = np.atleast_1d(first_choice(space)).tolist()
        self.width = sum(self._sizes)

    def prepare(self, ops: Ops, obs: Tensor) -> Tensor:
        """One-hot vectors [..., width]."""
        entries = [obs] if self._is_one else [obs[..., n] for n in range(len(self._sizes))]
        # Most spaces start at 0 and need no subtraction.
        counted = [x - start if start else x for x, start in zip(entries, self._starts, strict=True)]
        # A batch may have whole numbers as floats.
        whole = [ops.cast(x, "int32") for x in counted]
        vectors = [ops.one_hot(x, size) for x, size in zip(whole, self._sizes, strict=True)]
        return vectors[0] if self._is_one else ops.concat(vectors, -1)


def array_input(space: gym.Space[Any] | None) -> Input:
    """The input part for observations that are one array without convolutions.

    Raises:
        ConfigError: the built-in networks do not support the space.
    """
    if space is not None and is_array(space):
        own = array_space(space)
        shape = tuple(own.shape or ())
        if not is_one_hot(own):
            return VectorInput(shape, byte_scale(own))
        if len(shape) < 2:
            return OneHotInput(own)
    raise ConfigError(
        f"observation space {space}: the built-in networks take Box, Discrete, MultiDiscrete [n] and MultiBinary, and "
        "Dicts and Tuples of these; for others give a module_class"
    )


def byte_scale(space: gym.Space[Any]) -> float | None:
    """The factor for uint8 observations: 1 over the highest bound of the space, which is 255 for images."""
    if isinstance(space, gym.spaces.Box) and space.dtype == np.uint8:
        return 1.0 / max(1, int(np.max(space.high)))
    return None
