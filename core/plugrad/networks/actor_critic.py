"""ActorCritic: the built-in policy and value network."""

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
from plugrad.networks.network import Network
from plugrad.ops import Ops
from plugrad.types import Array, Tensor


class ActorCritic(Network):
    """A policy network and a value network: an encoder each or one for both, with `use_lstm` an LSTM, and linear heads.

    Parameters, in order: `encoder.conv.<i>.*`, `encoder.<i>.*` and `encoder.lstm.*` if layers are shared, else the
    same of `pi`; `pi.out.*`; `pi.log_std` if free; the same of `vf` unless shared; `vf.out.*`.

    Args:
        spec: the spaces, and `model_config` with keys of `plugrad.module_spec.MODEL_CONFIG`; `inference_only` leaves
            the value network out.

    Raises:
        ConfigError: a space or a setting is not supported.
    """

    def __init__(self, spec: RLModuleSpec) -> None:
        config = spec.network_config()
        self._encoder = Encoder(spec.observation_space, config)
        self._shared = bool(config["vf_share_layers"])
        self._policy_encoder, self._value_encoder = ("encoder", "encoder") if self._shared else ("pi", "vf")
        self._free_log_std = config["free_log_std"] and isinstance(spec.action_space, gym.spaces.Box)
        self._with_value = not spec.inference_only
        self._cells = lstm_cell_size(config) if config["use_lstm"] else 0
        self._width = self._cells or self._encoder.width
        inputs = action_inputs(spec.action_space)
        self._outputs = inputs // 2 if self._free_log_std else inputs
        self.parameters = tuple(self._parameters())
        self.acts_in_numpy = not self._encoder.filters

    def initial_state(self) -> dict[str, Array]:
        """The recurrent state at the start of an episode: `{name: float32 zeros [cells]}`; empty without `use_lstm`.

        The names are `h` and `c` if layers are shared, else `pi_h`, `pi_c`, `vf_h` and `vf_c`.
        """
        if not self._cells:
            return {}
        names = (self._policy_encoder, self._value_encoder) if self._with_value else (self._policy_encoder,)
        return {key: np.zeros(self._cells, np.float32) for name in names for key in self._state_keys(name)}

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Compute ACTION_DIST_INPUTS [B, inputs] and, if `value`, VF_PREDS [B] from OBS [B, ...].

        With `use_lstm` all columns are [B, T, ...], and STATE_IN and STATE_OUT are `{name: [B, cells]}`. See
        `Network.forward`.
        """
        x = self._encoder.prepare(ops, batch[Columns.OBS])
        features, state = self._features(ops, weights, self._policy_encoder, x, batch)
        out: dict[str, Any] = {Columns.ACTION_DIST_INPUTS: self._policy(ops, weights, features)}
        # The LSTM of the value network runs even where no value is asked for: its state must not fall behind.
        if self._with_value and (value or self._cells):
            if not self._shared:
                features, value_state = self._features(ops, weights, self._value_encoder, x, batch)
                state |= value_state
            if value:
                out[Columns.VF_PREDS] = ops.squeeze(dense(ops, weights, "vf.out", features), -1)
        if state:
            out[Columns.STATE_OUT] = state
        return out

    def _features(
        self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor, batch: Mapping[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The features of one encoder, and the state of its LSTM after the last step."""
        features = self._encoder.features(ops, weights, name, x)
        if not self._cells:
            return features, {}
        h, c = self._state_keys(name)
        before = (batch[Columns.STATE_IN][h], batch[Columns.STATE_IN][c])
        features, (last_h, last_c) = lstm(ops, weights, f"{name}.lstm", features, before)
        return features, {h: last_h, c: last_c}

    def _state_keys(self, name: str) -> tuple[str, str]:
        return ("h", "c") if self._shared else (f"{name}_h", f"{name}_c")

    def _policy(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        inputs = dense(ops, weights, "pi.out", features)
        if not self._free_log_std:
            return inputs
        log_std = ops.broadcast_to(weights["pi.log_std"], ops.shape(inputs))
        return ops.concat([inputs, log_std], -1)

    def _parameters(self) -> list[Parameter]:
        parameters = self._encoder_parameters(self._policy_encoder)
        parameters += layer_parameters("pi.out", (self._width, self._outputs), POLICY_GAIN)
        if self._free_log_std:
            parameters.append(Parameter("pi.log_std", (self._outputs,), initializers.constant, 0.0))
        if self._with_value:
            parameters += [] if self._shared else self._encoder_parameters(self._value_encoder)
            parameters += layer_parameters("vf.out", (self._width, 1), VALUE_GAIN)
        return parameters

    def _encoder_parameters(self, name: str) -> list[Parameter]:
        recurrent = lstm_parameters(f"{name}.lstm", self._encoder.width, self._cells) if self._cells else []
        return self._encoder.parameters(name) + recurrent


def action_inputs(action_space: gym.Space[Any] | None) -> int:
    """The number of columns of ACTION_DIST_INPUTS for an action space.

    Raises:
        ConfigError: there is no action space, or no distribution for it.
    """
    if action_space is None:
        raise ConfigError("a policy needs an action space: give action_space=")
    return distribution_class(action_space, numpy_ops).input_dim


def lstm_cell_size(config: Mapping[str, Any]) -> int:
    """The setting `lstm_cell_size` of a complete `model_config`.

    Raises:
        ConfigError: it is no whole number above 0.
    """
    size = config["lstm_cell_size"]
    if isinstance(size, int) and size > 0:
        return size
    raise ConfigError(f"lstm_cell_size={size!r}: must be a whole number above 0")
