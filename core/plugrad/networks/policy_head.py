"""The linear head of a policy."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from plugrad import numpy_ops
from plugrad.action_rows import action_parts
from plugrad.distributions import distribution_class
from plugrad.errors import ConfigError
from plugrad.networks import initializers
from plugrad.networks.layers import POLICY_GAIN, Parameter, dense, layer_parameters
from plugrad.ops import Ops
from plugrad.types import Tensor

NAME = "pi.out"
LOG_STD = "pi.log_std"


class PolicyHead:
    """A linear layer from features to ACTION_DIST_INPUTS; log standard deviations may be separate parameters.

    Parameters, in order: `pi.out.*`; `pi.log_std` [numbers of all Boxes] if there are Boxes and `free_log_std`.

    Args:
        space: space of one action.
        config: a complete `model_config`; reads `free_log_std`, `log_std_init` and `ortho_init`.
        width: number of features.

    Attributes:
        parameters: in canonical order.

    Raises:
        ConfigError: there is no action space, or no distribution for it.
    """

    def __init__(self, space: gym.Space[Any] | None, config: Mapping[str, Any], *, width: int) -> None:
        inputs = action_inputs(space)
        assert space is not None
        self._pieces = [_piece(part.space, config["free_log_std"]) for part in action_parts(space)]
        free = sum(number for _, number in self._pieces)
        weight = (width, inputs - free)
        self.parameters = layer_parameters(NAME, weight, POLICY_GAIN, ortho_init=config["ortho_init"])
        self._is_free = free > 0
        if self._is_free:
            self.parameters.append(Parameter(LOG_STD, (free,), initializers.constant, config["log_std_init"]))

    def inputs(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Compute ACTION_DIST_INPUTS.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            features: [..., width].

        Returns:
            float32 [..., inputs].
        """
        outputs = dense(ops, weights, NAME, features)
        if not self._is_free:
            return outputs
        if len(self._pieces) == 1:
            return _with_log_std(ops, outputs, weights[LOG_STD])
        parts = ops.split(outputs, [width for width, _ in self._pieces], -1)
        log_stds = iter(ops.split(weights[LOG_STD], [number for _, number in self._pieces if number], -1))
        return ops.concat(
            [
                _with_log_std(ops, part, next(log_stds)) if number else part
                for part, (_, number) in zip(parts, self._pieces, strict=True)
            ],
            -1,
        )


def action_inputs(action_space: gym.Space[Any] | None) -> int:
    """The number of columns of ACTION_DIST_INPUTS for an action space.

    Raises:
        ConfigError: there is no action space, or no distribution for it.
    """
    if action_space is None:
        raise ConfigError("a policy needs an action space: give action_space=")
    return distribution_class(action_space, numpy_ops).input_dim


def _piece(space: gym.Space[Any], free_log_std: bool) -> tuple[int, int]:
    """The number of linear outputs for a part of an action, and of log standard deviations after them."""
    inputs = action_inputs(space)
    if free_log_std and isinstance(space, gym.spaces.Box):
        return inputs // 2, inputs // 2
    return inputs, 0


def _with_log_std(ops: Ops, means: Tensor, log_std: Tensor) -> Tensor:
    # Not `broadcast_to`: a trace need not know the number of rows.
    return ops.concat([means, ops.zeros_like(means) + log_std], -1)
