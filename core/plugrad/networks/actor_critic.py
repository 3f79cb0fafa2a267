"""`ActorCritic`: the built-in policy and value network, and the linear head of a policy."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad import numpy_ops
from plugrad.columns import Columns
from plugrad.distributions import (
    LOG_STD_BOUNDS,
    Distribution,
    beta_class,
    distribution_class,
    squashed_gaussian_class,
    state_dependent_class,
)
from plugrad.errors import ConfigError
from plugrad.model_config import ACTION_DISTRIBUTION, BETA, CRITIC_ONLY, GSDE, MODEL_SETTINGS
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import initializers
from plugrad.networks.encoders import Encoder
from plugrad.networks.layers import (
    POLICY_GAIN,
    VALUE_GAIN,
    Network,
    Parameter,
    dense,
    layer_parameters,
    reshape_inner,
)
from plugrad.networks.recurrent import RecurrentLayer, recurrent_layer
from plugrad.ops import Ops
from plugrad.spaces.kinds import array_space, number_of_choices
from plugrad.spaces.layout import action_parts
from plugrad.types import Array, Tensor

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


class StateDependentHead:
    """The head of a policy with gSDE: means, and features times the standard deviations of their noise.

    No gradient flows from the noise to the features unless `learn_features`: only the means shape them, as in the
    authors' library, which lets SAC's noise shape them, too.

    Parameters, in order: `pi.out.*`; `pi.log_std` [numbers of an action, features].

    Args:
        space: a Box.
        config: a complete `model_config`; reads `log_std_init` and `ortho_init`.
        width: number of features.
        learn_features: whether gradients of the noise reach the features.

    Attributes:
        parameters: in canonical order.
    """

    def __init__(
        self, space: gym.Space[Any], config: Mapping[str, Any], *, width: int, learn_features: bool = False
    ) -> None:
        self._width, self._learn_features = width, learn_features
        self._numbers = action_inputs(space) // 2
        self.parameters = [
            *layer_parameters(NAME, (width, self._numbers), POLICY_GAIN, ortho_init=config["ortho_init"]),
            Parameter(LOG_STD, (self._numbers, width), initializers.constant, config["log_std_init"]),
        ]

    def inputs(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Compute ACTION_DIST_INPUTS; see `PolicyHead.inputs`."""
        seen = features if self._learn_features else ops.stop_gradient(features)
        scaled = ops.expand_dims(seen, -2) * ops.exp(weights[LOG_STD])
        rows = reshape_inner(ops, scaled, 2, (self._numbers * self._width,))
        return ops.concat([dense(ops, weights, NAME, features), rows], -1)


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
    if free_log_std and number_of_choices(space) is None:
        return inputs // 2, inputs // 2
    return inputs, 0


def _with_log_std(ops: Ops, means: Tensor, log_std: Tensor) -> Tensor:
    # Not `broadcast_to`: a trace need not know the number of rows.
    return ops.concat([means, ops.zeros_like(means) + log_std], -1)


class ActorCritic(Network):
    """A policy and a value network: separate or shared encoders, an optional recurrent layer, and linear heads.

    Parameters, in order: `encoder.*` and `encoder.lstm.*` or `encoder.gru.*` if layers are shared, else the same under
    `pi`; `pi.out.*`; `pi.log_std` with `free_log_std`; the same layers under `vf` unless shared; `vf.out.*`.

    Args:
        spec: the spaces, and `model_config` with keys of `plugrad.model_config.MODEL_SETTINGS`. `inference_only` leaves
            out the value network.

    Raises:
        ConfigError: a space or a setting is not supported.
    """

    def __init__(self, spec: RLModuleSpec) -> None:
        config = spec.network_config()
        self.critic_only = tuple(config[CRITIC_ONLY])
        self._shared = bool(config["vf_share_layers"])
        if self._shared and self.critic_only:
            raise ConfigError(
                f"{CRITIC_ONLY}={list(self.critic_only)} and vf_share_layers=True: layers that the policy shares with "
                "the value function read what it reads; set vf_share_layers=False"
            )
        self._policy_encoder, self._value_encoder = ("encoder", "encoder") if self._shared else ("pi", "vf")
        self._with_value = not spec.inference_only
        encoder = Encoder(spec.observation_space, config, without=self.critic_only)
        self._encoders = {self._policy_encoder: encoder}
        if self._with_value and not self._shared:
            own = Encoder(spec.observation_space, config) if self.critic_only else encoder
            self._encoders[self._value_encoder] = own
        self._recurrent = {name: recurrent_layer(config, each.width) for name, each in self._encoders.items()}
        self._widths = {
            name: self._encoders[name].width if recurrent is None else recurrent.width
            for name, recurrent in self._recurrent.items()
        }
        self._squashes = config["squash_actions"]
        if self._squashes:
            action_space = array_space(spec.action_space)
            if not isinstance(action_space, gym.spaces.Box):
                raise ConfigError(
                    f"squash_actions is for Box actions with bounds, and here is {spec.action_space}"
                )
            self._half = squashed_gaussian_class(action_space, numpy_ops).input_dim // 2
            config["free_log_std"] = False
        chosen = config[ACTION_DISTRIBUTION]
        self._is_beta, self._is_gsde = chosen == BETA, chosen == GSDE
        self._noise_steps = config["sde_sample_freq"]
        if self._squashes and (self._is_beta or self._is_gsde):
            raise ConfigError(
                f"squash_actions=True and {ACTION_DISTRIBUTION}={chosen!r} are two distributions: set one"
            )
        width = self._widths[self._policy_encoder]
        self._head: PolicyHead | StateDependentHead
        if self._is_gsde:
            assert spec.action_space is not None
            self._state_dependent_class(spec.action_space, numpy_ops)
            self._head = StateDependentHead(spec.action_space, config, width=width)
        else:
            if self._is_beta:
                assert spec.action_space is not None
                beta_class(spec.action_space, numpy_ops)
                config["free_log_std"] = False
            self._head = PolicyHead(spec.action_space, config, width=width)
        self.parameters = tuple(self._parameters(config))
        self.acts_in_numpy = not encoder.filters

    def distribution_class(self, action_space: gym.Space[Any], ops: Ops) -> type[Distribution]:
        """See `Network.distribution_class`; with `squash_actions`, Beta or gSDE, that one."""
        if self._squashes:
            return squashed_gaussian_class(action_space, ops)
        if self._is_beta:
            return beta_class(action_space, ops)
        if self._is_gsde:
            return self._state_dependent_class(action_space, ops)
        return super().distribution_class(action_space, ops)

    def _state_dependent_class(self, action_space: gym.Space[Any], ops: Ops) -> type[Distribution]:
        width = self._widths[self._policy_encoder]
        return state_dependent_class(action_space, ops, features=width, noise_steps=self._noise_steps)

    def initial_state(self) -> dict[str, Array]:
        """The recurrent state at the start of an episode: `{name: float32 zeros [cells]}`; empty without one.

        The names are `h` and, for an LSTM, `c` if layers are shared; else `pi_h`, `pi_c`, `vf_h` and `vf_c`.
        """
        return {
            key: np.zeros(recurrent.width, np.float32)
            for name, recurrent in self._recurrent.items()
            if recurrent is not None
            for key in self._state_keys(recurrent, name)
        }

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Compute ACTION_DIST_INPUTS [B, inputs] and, if `value`, VF_PREDS [B] from OBS [B, ...].

        With a recurrent layer all columns are [B, T, ...], and STATE_IN and STATE_OUT are `{name: [B, cells]}`. See
        `Network.forward`.
        """
        encoder = self._encoders[self._policy_encoder]
        x = encoder.prepare(ops, batch[Columns.OBS])
        features, state = self._features(ops, weights, self._policy_encoder, x, batch)
        inputs = self._head.inputs(ops, weights, features)
        if self._squashes:
            means, log_stds = ops.split(inputs, (self._half, self._half), -1)
            inputs = ops.concat([means, ops.clip(log_stds, *LOG_STD_BOUNDS)], -1)
        out: dict[str, Any] = {Columns.ACTION_DIST_INPUTS: inputs}
        # The value network's state must not fall behind, even if no value is requested.
        if self._with_value and (value or state):
            if not self._shared:
                own = self._encoders[self._value_encoder]
                x = x if own is encoder else own.prepare(ops, batch[Columns.OBS])
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
        """The features of one encoder, and the state of its recurrent layer after the last step."""
        features, recurrent = self._encoders[name].features(ops, weights, name, x), self._recurrent[name]
        if recurrent is None:
            return features, {}
        keys = self._state_keys(recurrent, name)
        before = tuple(batch[Columns.STATE_IN][key] for key in keys)
        features, after = recurrent.forward(ops, weights, name, features, before)
        return features, dict(zip(keys, after, strict=True))

    def _state_keys(self, recurrent: RecurrentLayer, name: str) -> tuple[str, ...]:
        return (
            recurrent.state_names
            if self._shared
            else tuple(f"{name}_{each}" for each in recurrent.state_names)
        )

    def _parameters(self, config: Mapping[str, Any]) -> list[Parameter]:
        parameters = self._encoder_parameters(self._policy_encoder) + self._head.parameters
        if self._with_value:
            parameters += [] if self._shared else self._encoder_parameters(self._value_encoder)
            ortho = config["ortho_init"]
            parameters += layer_parameters(
                "vf.out", (self._widths[self._value_encoder], 1), VALUE_GAIN, ortho_init=ortho
            )
        return parameters

    def _encoder_parameters(self, name: str) -> list[Parameter]:
        recurrent = self._recurrent[name]
        return self._encoders[name].parameters(name) + (recurrent.parameters(name) if recurrent else [])


def lstm_cell_size(config: Mapping[str, Any]) -> int:
    """The setting `lstm_cell_size` of a complete `model_config`.

    Raises:
        ConfigError: it is not a whole number above 0.
    """
    size: int = config["lstm_cell_size"]
    MODEL_SETTINGS["lstm_cell_size"].check("lstm_cell_size", size)
    return size
