"""The built-in networks, written once over ops: what parameters they have and what they compute.

A backend wraps a network into a module of its framework; numpy ops run the very same code for acting. Weights are
(in, out); names and order here are those of flat buffers and checkpoints. Knows no framework.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad import initializers, numpy_ops
from plugrad.columns import Columns
from plugrad.distributions import distribution_class
from plugrad.errors import ConfigError
from plugrad.module_spec import RLModuleSpec
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

ACTIVATIONS: dict[str, Callable[[Ops], Callable[[Tensor], Tensor]]] = {
    "tanh": lambda ops: ops.tanh,
    "relu": lambda ops: ops.relu,
    "sigmoid": lambda ops: ops.sigmoid,
    "linear": lambda ops: lambda x: x,
}
_HIDDEN_GAIN, _POLICY_GAIN, _VALUE_GAIN = sqrt(2.0), 0.01, 1.0
"""Orthogonal gains for PPO: Andrychowicz et al. 2021, choices C56 and C57 (small initial policy)."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a network: its name, shape and how it is drawn."""

    name: str
    shape: tuple[int, ...]
    init: Callable[[np.random.Generator, Any, float], Array]
    scale: float


class ActorCriticMLP:
    """Policy and value networks for flat observations.

    Parameters, in order: `encoder.<i>.*` if layers are shared, else `pi.<i>.*`; `pi.out.*`; `pi.log_std` if free;
    `vf.<i>.*` unless shared; `vf.out.*`.

    Args:
        spec: spaces and `model_config`; `inference_only` leaves the value network out.

    Raises:
        ConfigError: for spaces or settings that it cannot serve.
    """

    def __init__(self, spec: RLModuleSpec) -> None:
        config = spec.network_config()
        if config["fcnet_activation"] not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ConfigError(f"fcnet_activation={config['fcnet_activation']!r}: use one of {known}")
        self._space = spec.observation_space
        self._activation = config["fcnet_activation"]
        self._shared = bool(config["vf_share_layers"])
        self._free_log_std = config["free_log_std"] and isinstance(spec.action_space, gym.spaces.Box)
        self._with_value = not spec.inference_only
        self._hiddens = _widths(config["fcnet_hiddens"])
        outputs = action_inputs(spec.action_space)
        self._outputs = outputs // 2 if self._free_log_std else outputs
        self.parameters: tuple[Parameter, ...] = tuple(self._parameters())

    def initial_weights(self, rng: np.random.Generator) -> dict[str, Array]:
        """`{name: float32 array}`, drawn in the order of `parameters`."""
        return {each.name: each.init(rng, each.shape, each.scale) for each in self.parameters}

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """Columns `ACTION_DIST_INPUTS` [B, inputs] and, if `value`, `VF_PREDS` [B] from `OBS` [B, ...]."""
        x = self._flatten(ops, batch[Columns.OBS])
        tower = "encoder" if self._shared else "pi"
        policy = self._hidden(ops, weights, tower, x)
        inputs = _dense(ops, weights, "pi.out", policy)
        if self._free_log_std:
            log_std = ops.broadcast_to(weights["pi.log_std"], ops.shape(inputs))
            inputs = ops.concat([inputs, log_std], -1)
        out = {Columns.ACTION_DIST_INPUTS: inputs}
        if value and self._with_value:
            features = policy if self._shared else self._hidden(ops, weights, "vf", x)
            out[Columns.VF_PREDS] = ops.squeeze(_dense(ops, weights, "vf.out", features), -1)
        return out

    def _parameters(self) -> Sequence[Parameter]:
        width = self._hiddens[-1] if self._hiddens else self._inputs
        parameters = self._tower("encoder" if self._shared else "pi")
        parameters += _layer("pi.out", width, self._outputs, _POLICY_GAIN)
        if self._free_log_std:
            parameters.append(Parameter("pi.log_std", (self._outputs,), initializers.constant, 0.0))
        if self._with_value:
            parameters += [] if self._shared else self._tower("vf")
            parameters += _layer("vf.out", width, 1, _VALUE_GAIN)
        return parameters

    def _tower(self, name: str) -> list[Parameter]:
        widths = (self._inputs, *self._hiddens)
        return [
            parameter
            for n, (inputs, outputs) in enumerate(pairwise(widths))
            for parameter in _layer(f"{name}.{n}", inputs, outputs, _HIDDEN_GAIN)
        ]

    @property
    def _inputs(self) -> int:
        if isinstance(self._space, gym.spaces.Box):
            return prod(self._space.shape)
        if isinstance(self._space, gym.spaces.Discrete):
            return int(self._space.n)
        raise ConfigError(
            f"observation space {self._space}: the built-in networks take Box and Discrete; flatten others with "
            "gymnasium.wrappers.FlattenObservation or give a module_class"
        )

    def _flatten(self, ops: Ops, obs: Tensor) -> Tensor:
        if isinstance(self._space, gym.spaces.Discrete):
            return ops.one_hot(obs, self._inputs)
        assert isinstance(self._space, gym.spaces.Box)
        obs = ops.cast(obs, "float32")  # integers are good observations of a Box
        shape = ops.shape(obs)
        if len(self._space.shape) == 1:
            return obs
        return ops.reshape(obs, (*shape[: len(shape) - len(self._space.shape)], self._inputs))

    def _hidden(self, ops: Ops, weights: Mapping[str, Tensor], tower: str, x: Tensor) -> Tensor:
        activate = ACTIVATIONS[self._activation](ops)
        for n in range(len(self._hiddens)):
            x = activate(_dense(ops, weights, f"{tower}.{n}", x))
        return x


def _widths(hiddens: Any) -> tuple[int, ...]:
    if isinstance(hiddens, list | tuple) and all(isinstance(each, int) and each > 0 for each in hiddens):
        return tuple(hiddens)
    raise ConfigError(f"fcnet_hiddens={hiddens!r}: must be a list of whole numbers above 0, such as [64, 64]")


def action_inputs(action_space: gym.Space[Any] | None) -> int:
    """Number of columns of `ACTION_DIST_INPUTS` that an action space needs."""
    if action_space is None:
        raise ConfigError("a policy needs an action space: give action_space=")
    return distribution_class(action_space, numpy_ops).input_dim


def _layer(name: str, inputs: int, outputs: int, gain: float) -> list[Parameter]:
    return [
        Parameter(f"{name}.weight", (inputs, outputs), initializers.orthogonal, gain),
        Parameter(f"{name}.bias", (outputs,), initializers.constant, 0.0),
    ]


def _dense(ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return ops.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
