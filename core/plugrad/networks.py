"""Neutral networks, written once over ops: what parameters they have and what they compute; and the built-in one.

A backend wraps a network into a module of its framework; numpy ops run the very same code for acting. Weights are
(in, out), of convolutions (kernel, kernel, in, out); names and order here are those of flat buffers and checkpoints.
Knows no framework.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad import initializers, numpy_ops
from plugrad.columns import Columns
from plugrad.distributions import distribution_class
from plugrad.errors import ConfigError
from plugrad.layers import POLICY_GAIN, VALUE_GAIN, Parameter, dense, layer_parameters
from plugrad.module_spec import RLModuleSpec
from plugrad.ops import Ops
from plugrad.towers import Tower
from plugrad.types import Array, Tensor


class Network(ABC):
    """A network over ops: derive from it, and return it in the hook `build_network`, for one of your own.

    Attributes:
        parameters: all of them, in canonical order; set by the subclass.
        acts_in_numpy: whether acting in numpy is quicker than a framework's call: true of small products, not of
            convolutions.
    """

    parameters: tuple[Parameter, ...]
    acts_in_numpy: bool = True

    def initial_weights(self, rng: np.random.Generator) -> dict[str, Array]:
        """`{name: float32 array}`, drawn in the order of `parameters`."""
        return {each.name: each.init(rng, each.shape, each.scale) for each in self.parameters}

    @abstractmethod
    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """Columns of a batch, `ACTION_DIST_INPUTS` [B, inputs] among them.

        Args:
            ops: tensor functions.
            weights: `{name: tensor}` of `parameters`.
            batch: columns; `OBS` [B, ...] is always there.
            value: compute also what acting greedily does not need. Traced.
        """


class ActorCritic(Network):
    """Policy and value networks: a tower for each, or one for both, and a linear head on top.

    Parameters, in order: `encoder.conv.<i>.*` and `encoder.<i>.*` if layers are shared, else the same of `pi`;
    `pi.out.*`; `pi.log_std` if free; `vf.conv.<i>.*` and `vf.<i>.*` unless shared; `vf.out.*`.

    Args:
        spec: spaces and `model_config`; `inference_only` leaves the value network out.

    Raises:
        ConfigError: for spaces or settings that it cannot serve.
    """

    def __init__(self, spec: RLModuleSpec) -> None:
        config = spec.network_config()
        self._tower = Tower(spec.observation_space, config)
        self._policy_tower, self._value_tower = (
            ("encoder", "encoder") if config["vf_share_layers"] else ("pi", "vf")
        )
        self._free_log_std = config["free_log_std"] and isinstance(spec.action_space, gym.spaces.Box)
        self._with_value = not spec.inference_only
        outputs = action_inputs(spec.action_space)
        self._outputs = outputs // 2 if self._free_log_std else outputs
        self.parameters = tuple(self._parameters())
        self.acts_in_numpy = not self._tower.filters

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """Columns `ACTION_DIST_INPUTS` [B, inputs] and, if `value`, `VF_PREDS` [B] from `OBS` [B, ...]."""
        x = self._tower.prepare(ops, batch[Columns.OBS])
        features = self._tower.features(ops, weights, self._policy_tower, x)
        out = {Columns.ACTION_DIST_INPUTS: self._policy(ops, weights, features)}
        if value and self._with_value:
            if not self._shared:
                features = self._tower.features(ops, weights, self._value_tower, x)
            out[Columns.VF_PREDS] = ops.squeeze(dense(ops, weights, "vf.out", features), -1)
        return out

    def _policy(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        inputs = dense(ops, weights, "pi.out", features)
        if not self._free_log_std:
            return inputs
        log_std = ops.broadcast_to(weights["pi.log_std"], ops.shape(inputs))
        return ops.concat([inputs, log_std], -1)

    @property
    def _shared(self) -> bool:
        return self._policy_tower == self._value_tower

    def _parameters(self) -> list[Parameter]:
        width = self._tower.width
        parameters = self._tower.parameters(self._policy_tower)
        parameters += layer_parameters("pi.out", (width, self._outputs), POLICY_GAIN)
        if self._free_log_std:
            parameters.append(Parameter("pi.log_std", (self._outputs,), initializers.constant, 0.0))
        if self._with_value:
            parameters += [] if self._shared else self._tower.parameters(self._value_tower)
            parameters += layer_parameters("vf.out", (width, 1), VALUE_GAIN)
        return parameters


def action_inputs(action_space: gym.Space[Any] | None) -> int:
    """Number of columns of `ACTION_DIST_INPUTS` that an action space needs."""
    if action_space is None:
        raise ConfigError("a policy needs an action space: give action_space=")
    return distribution_class(action_space, numpy_ops).input_dim
