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

from plugrad import numpy_ops
from plugrad.columns import Columns
from plugrad.distributions import distribution_class
from plugrad.errors import ConfigError
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import initializers
from plugrad.networks.encoders import Encoder
from plugrad.networks.layers import POLICY_GAIN, VALUE_GAIN, Parameter, dense, layer_parameters
from plugrad.networks.lstm import lstm, lstm_parameters
from plugrad.ops import Ops
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

    def initial_state(self) -> dict[str, Array]:
        """The recurrent state at the start of an episode, `{name: float32 array}`; by default none."""
        return {}

    @abstractmethod
    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Columns of a batch, `ACTION_DIST_INPUTS` [B, inputs] among them.

        Args:
            ops: tensor functions.
            weights: `{name: tensor}` of `parameters`.
            batch: columns; `OBS` [B, ...] is always there. With a state they are sequences: see
                `RLModule.get_initial_state`.
            value: compute also what acting greedily does not need. Traced.
        """


class ActorCritic(Network):
    """Policy and value networks: a tower for each, or one for both, with `use_lstm` a memory, and a linear head on top.

    Parameters, in order: `encoder.conv.<i>.*`, `encoder.<i>.*` and `encoder.lstm.*` if layers are shared, else the
    same of `pi`; `pi.out.*`; `pi.log_std` if free; the same of `vf` unless shared; `vf.out.*`.

    Args:
        spec: spaces and `model_config`; `inference_only` leaves the value network out.

    Raises:
        ConfigError: for spaces or settings that it cannot serve.
    """

    def __init__(self, spec: RLModuleSpec) -> None:
        config = spec.network_config()
        self._tower = Encoder(spec.observation_space, config)
        self._policy_tower, self._value_tower = (
            ("encoder", "encoder") if config["vf_share_layers"] else ("pi", "vf")
        )
        self._free_log_std = config["free_log_std"] and isinstance(spec.action_space, gym.spaces.Box)
        self._with_value = not spec.inference_only
        self._cells = lstm_cell_size(config) if config["use_lstm"] else 0
        outputs = action_inputs(spec.action_space)
        self._outputs = outputs // 2 if self._free_log_std else outputs
        self.parameters = tuple(self._parameters())
        self.acts_in_numpy = not self._tower.filters

    def initial_state(self) -> dict[str, Array]:
        """The state at the start of an episode, `{name: float32 zeros [cells]}`; empty without `use_lstm`.

        The names are `h` and `c` if layers are shared, else `pi_h`, `pi_c`, `vf_h` and `vf_c`.
        """
        if not self._cells:
            return {}
        towers = (self._policy_tower, self._value_tower) if self._with_value else (self._policy_tower,)
        return {key: np.zeros(self._cells, np.float32) for tower in towers for key in self._state_keys(tower)}

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Columns `ACTION_DIST_INPUTS` [B, inputs] and, if `value`, `VF_PREDS` [B] from `OBS` [B, ...].

        With `use_lstm` there are sequences, [B, T, ...] throughout, that begin with `STATE_IN`, `{name: [B, cells]}`;
        `STATE_OUT` is the same after the last step.
        """
        x = self._tower.prepare(ops, batch[Columns.OBS])
        state: dict[str, Tensor] = {}
        features = self._features(ops, weights, self._policy_tower, x, batch, state)
        out: dict[str, Any] = {Columns.ACTION_DIST_INPUTS: self._policy(ops, weights, features)}
        # A memory of the value network goes on even where no value is asked for.
        if self._with_value and (value or self._cells):
            if not self._shared:
                features = self._features(ops, weights, self._value_tower, x, batch, state)
            if value:
                out[Columns.VF_PREDS] = ops.squeeze(dense(ops, weights, "vf.out", features), -1)
        if state:
            out[Columns.STATE_OUT] = state
        return out

    def _features(
        self,
        ops: Ops,
        weights: Mapping[str, Tensor],
        tower: str,
        x: Tensor,
        batch: Mapping[str, Any],
        state: dict[str, Tensor],
    ) -> Tensor:
        """What the tower makes of `x`; a memory's last state is written into `state`."""
        features = self._tower.features(ops, weights, tower, x)
        if not self._cells:
            return features
        h, c = self._state_keys(tower)
        before = (batch[Columns.STATE_IN][h], batch[Columns.STATE_IN][c])
        features, (state[h], state[c]) = lstm(ops, weights, f"{tower}.lstm", features, before)
        return features

    def _state_keys(self, tower: str) -> tuple[str, str]:
        return ("h", "c") if self._shared else (f"{tower}_h", f"{tower}_c")

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
        parameters = self._layers(self._policy_tower)
        parameters += layer_parameters("pi.out", (self._width, self._outputs), POLICY_GAIN)
        if self._free_log_std:
            parameters.append(Parameter("pi.log_std", (self._outputs,), initializers.constant, 0.0))
        if self._with_value:
            parameters += [] if self._shared else self._layers(self._value_tower)
            parameters += layer_parameters("vf.out", (self._width, 1), VALUE_GAIN)
        return parameters

    def _layers(self, tower: str) -> list[Parameter]:
        memory = lstm_parameters(f"{tower}.lstm", self._tower.width, self._cells) if self._cells else []
        return self._tower.parameters(tower) + memory

    @property
    def _width(self) -> int:
        return self._cells or self._tower.width


def action_inputs(action_space: gym.Space[Any] | None) -> int:
    """Number of columns of `ACTION_DIST_INPUTS` that an action space needs."""
    if action_space is None:
        raise ConfigError("a policy needs an action space: give action_space=")
    return distribution_class(action_space, numpy_ops).input_dim


def lstm_cell_size(config: Mapping[str, Any]) -> int:
    """`lstm_cell_size` of `model_config`, checked."""
    size = config["lstm_cell_size"]
    if isinstance(size, int) and size > 0:
        return size
    raise ConfigError(f"lstm_cell_size={size!r}: must be a whole number above 0")
