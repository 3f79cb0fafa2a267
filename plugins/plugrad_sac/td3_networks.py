"""The network of TD3: a deterministic policy, and Gaussian noise around it to explore."""

from math import log
from typing import Any

from plugrad import RLModuleSpec
from plugrad.ops import Ops
from plugrad.types import Tensor
from plugrad_sac.networks import BoxPolicyAndCritics


class DeterministicNetwork(BoxPolicyAndCritics):
    """TD3's network: ACTION_DIST_INPUTS are actions within the bounds, then logs of the noise's standard deviations.

    They are the inputs of a `DiagGaussian`: its mode is the deterministic action, its samples explore.

    Args:
        spec: see `PolicyAndCritics`.
        exploration_noise: standard deviation of the noise, above 0, for actions rescaled to [-1, 1].

    Raises:
        ConfigError: the action space is no float Box with finite bounds.
    """

    algorithm = "TD3"
    can_remember = True

    def __init__(self, spec: RLModuleSpec, *, exploration_noise: float) -> None:
        super().__init__(spec, outputs_per_dimension=1)
        self._exploration_noise = exploration_noise

    def _inputs(self, ops: Ops, outputs: Tensor) -> Tensor:
        return deterministic_inputs(ops, self._bounds(ops), outputs, self._exploration_noise)


def deterministic_inputs(ops: Ops, bounds: Any, outputs: Tensor, exploration_noise: float) -> Tensor:
    """The inputs of a `DiagGaussian` around a deterministic action.

    Args:
        ops: tensor functions.
        bounds: a class of `squashed_gaussian_class` for rows of actions.
        outputs: any numbers [B, d]; `tanh` of them is the action, rescaled to [-1, 1].
        exploration_noise: see `DeterministicNetwork`.

    Returns:
        [B, 2 d]: actions, then logs of standard deviations.
    """
    half_widths = bounds.unscale_actions(ops.ones_like(outputs)) - bounds.unscale_actions(
        ops.zeros_like(outputs)
    )
    log_std = ops.log(half_widths) + log(exploration_noise)
    return ops.concat([bounds.unscale_actions(ops.tanh(outputs)), log_std], -1)
