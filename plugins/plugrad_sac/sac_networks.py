"""The networks of SAC: a squashed Gaussian policy for a Box, a categorical policy for discrete actions."""

from collections.abc import Mapping
from math import log
from typing import Any

import gymnasium as gym

from plugrad import Columns, RLModuleSpec
from plugrad.distributions import (
    LOG_STD_BOUNDS,
    SquashedGaussian,
    squashed_gaussian_class,
    state_dependent_class,
)
from plugrad.errors import ConfigError
from plugrad.model_config import ACTION_DISTRIBUTION, GSDE
from plugrad.networks import StateDependentHead
from plugrad.networks.initializers import constant
from plugrad.networks.layers import Parameter
from plugrad.ops import Ops
from plugrad.spaces import array_space
from plugrad.types import Tensor
from plugrad_sac.networks import BoxPolicyAndCritics, PolicyAndCritics

LOG_ALPHA = "log_alpha"
"""The logarithm of the temperature: a scalar parameter, and an output where the batch has ACTIONS."""


class SquashedGaussianNetwork(BoxPolicyAndCritics):
    """SAC's network for a bounded Box: ACTION_DIST_INPUTS are means, then logs of standard deviations.

    With `action_distribution="gsde"` they are those of a `SquashedStateDependentGaussian`.

    Args:
        spec: see `PolicyAndCritics`.
        initial_alpha: the initial temperature, above 0.
        num_quantiles: see `BoxPolicyAndCritics`.
    """

    algorithm = "SAC"
    can_remember = True
    has_gsde = True

    def __init__(self, spec: RLModuleSpec, *, initial_alpha: float, num_quantiles: int | None = None) -> None:
        super().__init__(spec, outputs_per_dimension=2, num_quantiles=num_quantiles)
        self.parameters += _temperature(spec, initial_alpha)

    def distribution_class(self, action_space: gym.Space[Any], ops: Ops) -> type[SquashedGaussian]:
        """See `Network.distribution_class`."""
        if self._noise_head is None:
            return squashed_gaussian_class(action_space, ops)
        found = state_dependent_class(
            action_space, ops, features=self._num_features, noise_steps=self._noise_steps, squashed=True
        )
        assert issubclass(found, SquashedGaussian)
        return found

    def _state_dependent_head(self, config: Mapping[str, Any], width: int) -> StateDependentHead | None:
        self._num_features, self._noise_steps = width, config["sde_sample_freq"]
        if config[ACTION_DISTRIBUTION] != GSDE or not self.has_gsde:
            return None
        return StateDependentHead(self._action_space, config, width=width, learn_features=True)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """See `Network.forward` and `PolicyAndCritics`; with LOG_ALPHA."""
        return _with_temperature(super().forward(ops, weights, batch, value=value), weights, batch)

    def _inputs(self, ops: Ops, outputs: Tensor) -> Tensor:
        half = self._num_dimensions
        mean, log_std = ops.split(outputs, (half, half), -1)
        return ops.concat([mean, ops.clip(log_std, *LOG_STD_BOUNDS)], -1)


class CategoricalNetwork(PolicyAndCritics):
    """SAC's network for discrete actions: ACTION_DIST_INPUTS are logits, QF_PREDS the values of all actions.

    Args:
        spec: see `PolicyAndCritics`; its action space is Discrete.
        initial_alpha: the initial temperature, above 0.
    """

    algorithm = "SAC"
    can_remember = True

    def __init__(self, spec: RLModuleSpec, *, initial_alpha: float) -> None:
        num_actions = int(array_space(spec.action_space).n)  # type: ignore[attr-defined]
        super().__init__(spec, num_outputs=num_actions, num_inputs=0, num_values=num_actions)
        self.parameters += _temperature(spec, initial_alpha)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """See `Network.forward` and `PolicyAndCritics`; with LOG_ALPHA."""
        return _with_temperature(super().forward(ops, weights, batch, value=value), weights, batch)

    def _inputs(self, ops: Ops, outputs: Tensor) -> Tensor:
        return outputs

    def _values(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor, actions: Tensor) -> Tensor:
        return self._critics.values(ops, weights, features)


def sac_network(spec: RLModuleSpec, *, initial_alpha: float) -> PolicyAndCritics:
    """The network of SAC for a module's action space.

    Args:
        spec: complete, with spaces.
        initial_alpha: the initial temperature, above 0.

    Returns:
        A `SquashedGaussianNetwork` or a `CategoricalNetwork`.

    Raises:
        ConfigError: another space than a bounded float Box or Discrete.
    """
    match array_space(spec.action_space):
        case gym.spaces.Discrete():
            return CategoricalNetwork(spec, initial_alpha=initial_alpha)
        case gym.spaces.Box():
            return SquashedGaussianNetwork(spec, initial_alpha=initial_alpha)
    raise ConfigError(
        f"SAC needs a Box or a Discrete action space, found {spec.action_space}. Change the actions with a "
        "gymnasium.ActionWrapper.",
        action_space=spec.action_space,
    )


def _temperature(spec: RLModuleSpec, initial_alpha: float) -> tuple[Parameter, ...]:
    return () if spec.inference_only else (Parameter(LOG_ALPHA, (), constant, log(initial_alpha)),)


def _with_temperature(
    columns: dict[str, Tensor], weights: Mapping[str, Tensor], batch: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    return {**columns, LOG_ALPHA: weights[LOG_ALPHA]} if Columns.ACTIONS in batch else columns
