"""`PolicyAndCritics`: what the networks of SAC and TD3 have in common, written once over ops."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from plugrad import Columns, RLModuleSpec, numpy_ops
from plugrad.distributions import SquashedGaussian, squashed_gaussian_class
from plugrad.errors import ConfigError
from plugrad.model_config import CRITIC_ONLY
from plugrad.networks import Network, RecurrentLayer, StateDependentHead, recurrent_layer, refuse_recurrence
from plugrad.networks.encoders import Encoder
from plugrad.networks.layers import POLICY_GAIN, dense, layer_parameters
from plugrad.ops import Ops
from plugrad.spaces import array_space
from plugrad.types import Array, Tensor
from plugrad_sac.twin_critics import CRITICS, TwinCritics

POLICY = "pi"
"""Names of the policy's parameters begin with it."""
QF_PREDS = "qf_preds"
"""Values of both critics: [2, B], or [2, B, actions] of all discrete actions."""
POLICY_ACTIONS = "policy_actions"
"""Actions [B, ...] of the present policy, in place of ACTIONS: only QF_PREDS are computed, and no gradient flows into
the critics' weights."""


class PolicyAndCritics(Network):
    """A policy network and twin critics, without shared layers.

    What is computed depends on the columns of the batch. OBS alone gives ACTION_DIST_INPUTS. OBS and ACTIONS give
    QF_PREDS of these actions too. OBS and POLICY_ACTIONS give QF_PREDS alone.

    With a recurrent layer after the policy's encoder and one in the critics, all columns are [B, T, ...], and STATE_IN
    and STATE_OUT are `{name: [B, cells]}`. The names are `pi_h`, `qf_h` and, for an LSTM, `pi_c`, `qf_c`.

    Parameters, in order: `pi.*`, `pi.lstm.*` or `pi.gru.*`, `pi.out.*`, `qf.*` (see `TwinCritics`).

    Args:
        spec: spaces and `model_config`; `inference_only` leaves the critics out.
        num_outputs: of the policy head.
        num_inputs: of the critics, see `TwinCritics`.
        num_values: of the critics, see `TwinCritics`.

    Raises:
        ConfigError: a space or setting is not supported.
    """

    algorithm: ClassVar[str]
    """The algorithm's name, for errors."""
    can_remember: ClassVar[bool] = False
    """Whether the algorithm trains recurrent networks."""
    has_gsde: ClassVar[bool] = False
    """Whether the policy may have state-dependent noise."""

    def __init__(self, spec: RLModuleSpec, *, num_outputs: int, num_inputs: int, num_values: int) -> None:
        config = spec.network_config()
        if not self.can_remember:
            refuse_recurrence(config, self.algorithm)
        self.critic_only = tuple(config[CRITIC_ONLY])
        self._policy = Encoder(spec.observation_space, config, without=self.critic_only)
        self._memory = recurrent_layer(config, self._policy.width)
        self._critics = TwinCritics(
            spec.observation_space, config, num_inputs=num_inputs, num_values=num_values
        )
        memories = {POLICY: self._memory, CRITICS: None if spec.inference_only else self._critics.memory}
        self._memories = {name: memory for name, memory in memories.items() if memory is not None}
        width = self._memory.width if self._memory else self._policy.width
        self._noise_head = self._state_dependent_head(config, width)
        self.parameters = (
            *self._policy.parameters(POLICY),
            *(self._memory.parameters(POLICY) if self._memory else ()),
            *(
                self._noise_head.parameters
                if self._noise_head
                else layer_parameters(
                    f"{POLICY}.out", (width, num_outputs), POLICY_GAIN, ortho_init=config["ortho_init"]
                )
            ),
            *(() if spec.inference_only else self._critics.parameters),
        )
        self.acts_in_numpy = not self._policy.filters

    def initial_state(self) -> dict[str, Array]:
        """Zeros for each recurrent layer. See `Network.initial_state` and the class."""
        return {
            key: np.zeros(memory.width, np.float32)
            for name, memory in self._memories.items()
            for key in _state_keys(name, memory)
        }

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """See `Network.forward` and the class."""
        obs, after = batch[Columns.OBS], {}
        if POLICY_ACTIONS in batch:
            constants = {
                name: ops.stop_gradient(each) for name, each in weights.items() if name.startswith(CRITICS)
            }
            features, _ = self._critics.features(ops, constants, obs, self._state(CRITICS, batch))
            return {QF_PREDS: self._values(ops, constants, features, batch[POLICY_ACTIONS])}
        x = self._policy.features(ops, weights, POLICY, self._policy.prepare(ops, obs))
        if self._memory is not None:
            x, state = self._memory.forward(ops, weights, POLICY, x, self._state(POLICY, batch))
            after = dict(zip(_state_keys(POLICY, self._memory), state, strict=True))
        columns: dict[str, Any] = {
            Columns.ACTION_DIST_INPUTS: self._noise_head.inputs(ops, weights, x)
            if self._noise_head
            else self._inputs(ops, dense(ops, weights, f"{POLICY}.out", x)),
        }
        if Columns.ACTIONS in batch or CRITICS in self._memories:
            features, state = self._critics.features(ops, weights, obs, self._state(CRITICS, batch))
            if CRITICS in self._memories:  # acting keeps what the critics remember, too
                after |= zip(_state_keys(CRITICS, self._memories[CRITICS]), state, strict=True)
            if Columns.ACTIONS in batch:
                columns[QF_PREDS] = self._values(ops, weights, features, batch[Columns.ACTIONS])
        return {**columns, Columns.STATE_OUT: after} if after else columns

    def _state(self, name: str, batch: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """The state of a recurrent layer before the first step; empty without one."""
        memory = self._memories.get(name)
        return tuple(batch[Columns.STATE_IN][key] for key in _state_keys(name, memory)) if memory else ()

    def _state_dependent_head(self, config: Mapping[str, Any], width: int) -> StateDependentHead | None:
        """The head of a policy with gSDE; None for another one."""
        return None

    @abstractmethod
    def _inputs(self, ops: Ops, outputs: Tensor) -> Tensor:
        """ACTION_DIST_INPUTS [B, inputs] of the outputs of the policy head [B, num_outputs]."""

    @abstractmethod
    def _values(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor, actions: Tensor) -> Tensor:
        """QF_PREDS; `features` are those of `TwinCritics`."""


def _state_keys(name: str, memory: RecurrentLayer) -> list[str]:
    """The names of the arrays of a recurrent layer's state."""
    return [f"{name}_{each}" for each in memory.state_names]


class BoxPolicyAndCritics(PolicyAndCritics):
    """`PolicyAndCritics` for a bounded Box. Critics get actions rescaled and clipped to [-1, 1].

    Args:
        spec: see `PolicyAndCritics`.
        outputs_per_dimension: outputs of the policy head for each dimension of an action.
        num_quantiles: None: QF_PREDS are [2, B]; else [2, B, num_quantiles].

    Raises:
        ConfigError: the action space is no float Box with finite bounds.
    """

    def __init__(
        self, spec: RLModuleSpec, *, outputs_per_dimension: int, num_quantiles: int | None = None
    ) -> None:
        space = array_space(spec.action_space)
        if not isinstance(space, gym.spaces.Box):
            raise ConfigError(
                f"{self.algorithm} needs a bounded Box action space, found {spec.action_space}; "
                "`plugrad algorithms` lists what others take",
                action_space=spec.action_space,
            )
        self._action_space = space
        self._num_quantiles = num_quantiles
        self._num_dimensions = squashed_gaussian_class(self._action_space, numpy_ops).input_dim // 2
        self._flat_space = gym.spaces.flatten_space(self._action_space)
        super().__init__(
            spec,
            num_outputs=outputs_per_dimension * self._num_dimensions,
            num_inputs=self._num_dimensions,
            num_values=num_quantiles or 1,
        )

    def _bounds(self, ops: Ops) -> type[SquashedGaussian]:
        """Of actions as rows [B, d]."""
        return squashed_gaussian_class(self._flat_space, ops)

    def _values(self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor, actions: Tensor) -> Tensor:
        rows = squashed_gaussian_class(self._action_space, ops).flatten_actions(actions)
        # The environment clips the actions of an explorer that goes beyond the bounds.
        scaled = ops.clip(self._bounds(ops).scale_actions(rows), -1.0, 1.0)
        values = self._critics.values(ops, weights, features, scaled)
        return values if self._num_quantiles else ops.squeeze(values, -1)
