"""Q-networks over the built-in encoders, written once over ops."""

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network, recurrent_layer, refuse_recurrence
from plugrad.networks.encoders import Encoder
from plugrad.networks.layers import VALUE_GAIN, dense, layer_parameters
from plugrad.ops import Ops
from plugrad.spaces import array_space
from plugrad.types import Array, Tensor

QF_PREDS = "qf_preds"
"""The value of each action [B, actions]; RLlib's name."""


class QNetwork(Network):
    """The values of all actions: an encoder with one linear head, or with two if dueling.

    Dueling: `Q = V + A - mean(A)` (Wang et al. 2016, "Dueling Network Architectures", arXiv:1511.06581, equation 9).

    With a recurrent layer after the encoder, all columns are [B, T, ...], and STATE_IN and STATE_OUT are `{name: [B,
    cells]}` with the names `h` and, for an LSTM, `c`.

    Parameters, in order: `encoder.*`; `encoder.lstm.*` or `encoder.gru.*`; `q.out.*`, or `value.out.*` and
    `advantage.out.*` if dueling.

    Args:
        spec: spaces and `model_config`.
        dueling: separate heads for the state value and the advantages.
        num_outputs: of the heads, for each value.

    Raises:
        ConfigError: the actions are not discrete, or a space or setting is not supported.
    """

    algorithm: ClassVar[str] = "DQN"
    """The algorithm's name, for errors."""
    can_remember: ClassVar[bool] = False
    """Whether the algorithm trains recurrent networks."""

    def __init__(self, spec: RLModuleSpec, *, dueling: bool, num_outputs: int = 1) -> None:
        space = array_space(spec.action_space)
        if not isinstance(space, gym.spaces.Discrete):
            raise ConfigError(
                f"{self.algorithm} needs a Discrete action space, found {spec.action_space}; `plugrad algorithms` "
                "lists what others take"
            )
        config = spec.network_config()
        if not self.can_remember:
            refuse_recurrence(config, self.algorithm)
        self._encoder = Encoder(spec.observation_space, config)
        self._memory = recurrent_layer(config, self._encoder.width)
        features = self._memory.width if self._memory else self._encoder.width
        self._dueling = dueling
        self._num_actions = int(space.n)
        actions = self._num_actions * num_outputs
        heads = {"value.out": num_outputs, "advantage.out": actions} if dueling else {"q.out": actions}
        self.parameters = (
            *self._encoder.parameters("encoder"),
            *(self._memory.parameters("encoder") if self._memory else ()),
            *[
                parameter
                for head, width in heads.items()
                for parameter in layer_parameters(
                    head, (features, width), VALUE_GAIN, ortho_init=config["ortho_init"]
                )
            ],
        )
        self.acts_in_numpy = not self._encoder.filters

    def initial_state(self) -> dict[str, Array]:
        """Zeros for a recurrent layer. See `Network.initial_state` and the class."""
        names, width = (self._memory.state_names, self._memory.width) if self._memory else ((), 0)
        return {name: np.zeros(width, np.float32) for name in names}

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Compute QF_PREDS and ACTION_DIST_INPUTS, the same values [B, actions]: the mode is the best action.

        See `Network.forward`.
        """
        features, after = self._features(ops, weights, batch)
        values = self._values(ops, weights, features)
        return {QF_PREDS: values, Columns.ACTION_DIST_INPUTS: values, **after}

    def _features(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """What the heads read [B, ..., features]; and the column STATE_OUT, with a recurrent layer."""
        x = self._encoder.prepare(ops, batch[Columns.OBS])
        x = self._encoder.features(ops, weights, "encoder", x)
        if self._memory is None:
            return x, {}
        names = self._memory.state_names
        before = tuple(batch[Columns.STATE_IN][name] for name in names)
        x, after = self._memory.forward(ops, weights, "encoder", x, before)
        return x, {Columns.STATE_OUT: dict(zip(names, after, strict=True))}

    def _values(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        if not self._dueling:
            return dense(ops, weights, "q.out", features)
        advantages = dense(ops, weights, "advantage.out", features)
        centred = advantages - ops.mean(advantages, axis=-1, keepdims=True)
        return dense(ops, weights, "value.out", features) + centred


class DQNetwork(QNetwork):
    """`QNetwork` with a memory, if asked: DQN learns from sequences, too."""

    can_remember: ClassVar[bool] = True
