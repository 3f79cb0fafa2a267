"""Q-networks over the built-in encoders, written once over ops."""

from collections.abc import Mapping
from typing import ClassVar

import gymnasium as gym

from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network, refuse_recurrence
from plugrad.networks.encoders import Encoder
from plugrad.networks.layers import VALUE_GAIN, dense, layer_parameters
from plugrad.ops import Ops
from plugrad.spaces import array_space
from plugrad.types import Tensor

QF_PREDS = "qf_preds"
"""The value of each action [B, actions]; RLlib's name."""


class QNetwork(Network):
    """The values of all actions: an encoder with one linear head, or with two if dueling.

    Dueling: `Q = V + A - mean(A)` (Wang et al. 2016, "Dueling Network Architectures", arXiv:1511.06581, equation 9).

    Parameters, in order: `encoder.*`; `q.out.*`, or `value.out.*` and `advantage.out.*` if dueling.

    Args:
        spec: spaces and `model_config`.
        dueling: separate heads for the state value and the advantages.
        num_outputs: of the heads, for each value.

    Raises:
        ConfigError: the actions are not discrete, or a space or setting is not supported.
    """

    algorithm: ClassVar[str] = "DQN"
    """The algorithm's name, for errors."""

    def __init__(self, spec: RLModuleSpec, *, dueling: bool, num_outputs: int = 1) -> None:
        space = array_space(spec.action_space)
        if not isinstance(space, gym.spaces.Discrete):
            raise ConfigError(
                f"{self.algorithm} needs a Discrete action space, found {spec.action_space}; `plugrad algorithms` "
                "lists what others take"
            )
        config = spec.network_config()
        refuse_recurrence(config, self.algorithm)
        self._encoder = Encoder(spec.observation_space, config)
        self._dueling = dueling
        self._num_actions = int(space.n)
        actions = self._num_actions * num_outputs
        heads = {"value.out": num_outputs, "advantage.out": actions} if dueling else {"q.out": actions}
        self.parameters = (
            *self._encoder.parameters("encoder"),
            *[
                parameter
                for head, width in heads.items()
                for parameter in layer_parameters(
                    head, (self._encoder.width, width), VALUE_GAIN, ortho_init=config["ortho_init"]
                )
            ],
        )
        self.acts_in_numpy = not self._encoder.filters

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """Compute QF_PREDS and ACTION_DIST_INPUTS, the same values [B, actions]: the mode is the best action.

        See `Network.forward`.
        """
        values = self._values(ops, weights, self._features(ops, weights, batch[Columns.OBS]))
        return {QF_PREDS: values, Columns.ACTION_DIST_INPUTS: values}

    def _features(self, ops: Ops, weights: Mapping[str, Tensor], obs: Tensor) -> Tensor:
        return self._encoder.features(ops, weights, "encoder", self._encoder.prepare(ops, obs))

    def _values(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        if not self._dueling:
            return dense(ops, weights, "q.out", features)
        advantages = dense(ops, weights, "advantage.out", features)
        centred = advantages - ops.mean(advantages, axis=-1, keepdims=True)
        return dense(ops, weights, "value.out", features) + centred
