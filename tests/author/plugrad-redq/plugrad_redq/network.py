"""The networks of REDQ: a squashed Gaussian policy and an ensemble of critics, written once over ops."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from plugrad import Columns, RLModuleSpec
from plugrad.distributions import LOG_STD_BOUNDS, SquashedGaussian, squashed_gaussian_class
from plugrad.errors import ConfigError
from plugrad.networks import (
    Encoder,
    HiddenLayers,
    Network,
    Parameter,
    constant,
    dense,
    layer_parameters,
    refuse_recurrence,
    stacked,
)
from plugrad.ops import Ops
from plugrad.types import Tensor

POLICY, CRITICS, LOG_ALPHA = "pi", "qf", "log_alpha"
"""The names of the parameters of policy, critics and temperature begin with these."""
POLICY_ACTIONS = "policy_actions"
"""Actions of the present policy, in place of ACTIONS: no gradient flows into the critics' weights."""
QF_PREDS = "qf_preds"
"""The values of all critics [critics, B]."""


class PolicyAndEnsemble(Network):
    """One product with stacked weights computes all critics; their observations must be flat.

    Args:
        spec: spaces and `model_config`; a policy alone (`inference_only`) has no critics.
        num_critics: of the ensemble.
    """

    def __init__(self, spec: RLModuleSpec, num_critics: int) -> None:
        config = spec.network_config()
        refuse_recurrence(config, "REDQ")
        if not isinstance(spec.action_space, gym.spaces.Box) or not spec.action_space.is_bounded():
            raise ConfigError(f"REDQ needs a bounded Box action space, found {spec.action_space}")
        self.dimensions = gym.spaces.flatdim(spec.action_space)
        self.space, self.policy = spec.action_space, Encoder(spec.observation_space, config)
        self.inputs = Encoder(spec.observation_space, {**config, "fcnet_hiddens": ()})
        if self.inputs.filters:
            raise ConfigError(f"REDQ has no convolutions in its critics, found {spec.observation_space}")
        self.hidden = HiddenLayers(self.inputs.width + self.dimensions, config)
        self.out = f"{CRITICS}.{len(self.hidden)}"
        self.parameters = (
            *self.policy.parameters(POLICY),
            *layer_parameters(f"{POLICY}.out", (self.policy.width, 2 * self.dimensions), 0.01),
        )
        if not spec.inference_only:
            out = layer_parameters(self.out, (self.hidden.width, 1), 1.0)
            critics = stacked([*self.hidden.parameters(CRITICS), *out], num_critics)
            self.parameters += (*critics, Parameter(LOG_ALPHA, (), constant, 0.0))

    def distribution_class(self, action_space: gym.Space[Any], ops: Ops) -> type[SquashedGaussian]:
        return squashed_gaussian_class(action_space, ops)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        obs = batch[Columns.OBS]
        if POLICY_ACTIONS in batch:
            constants = {
                name: ops.stop_gradient(each) for name, each in weights.items() if name.startswith(CRITICS)
            }
            return {QF_PREDS: self.values(ops, constants, obs, batch[POLICY_ACTIONS])}
        features = self.policy.features(ops, weights, POLICY, self.policy.prepare(ops, obs))
        mean, log_std = ops.split(dense(ops, weights, f"{POLICY}.out", features), 2 * (self.dimensions,), -1)
        columns = {Columns.ACTION_DIST_INPUTS: ops.concat([mean, ops.clip(log_std, *LOG_STD_BOUNDS)], -1)}
        if Columns.ACTIONS in batch:
            columns[QF_PREDS] = self.values(ops, weights, obs, batch[Columns.ACTIONS])
            columns[LOG_ALPHA] = weights[LOG_ALPHA]
        return columns

    def values(self, ops: Ops, weights: Mapping[str, Tensor], obs: Tensor, actions: Tensor) -> Tensor:
        bounds = squashed_gaussian_class(self.space, ops)
        scaled = bounds.scale_actions(bounds.flatten_actions(actions))
        x = ops.concat([self.inputs.prepare(ops, obs), ops.clip(scaled, -1.0, 1.0)], -1)
        return ops.squeeze(dense(ops, weights, self.out, self.hidden.forward(ops, weights, CRITICS, x)), -1)
