"""`PolicyAndCritics`: what the networks of SAC and TD3 have in common, written once over ops."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import gymnasium as gym

from plugrad import Columns, RLModuleSpec, numpy_ops
from plugrad.distributions import SquashedGaussian, squashed_gaussian_class
from plugrad.errors import ConfigError
from plugrad.model_config import CRITIC_ONLY
from plugrad.networks import Network, refuse_recurrence
from plugrad.networks.encoders import Encoder
from plugrad.networks.layers import POLICY_GAIN, dense, layer_parameters
from plugrad.ops import Ops
from plugrad.spaces import array_space
from plugrad.types import Tensor
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

    Parameters, in order: `pi.*`, `pi.out.*`, `qf.*` (see `TwinCritics`).

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

    def __init__(self, spec: RLModuleSpec, *, num_outputs: int, num_inputs: int, num_values: int) -> None:
        config = spec.network_config()
        refuse_recurrence(config, self.algorithm)
        self.critic_only = tuple(config[CRITIC_ONLY])
        self._policy = Encoder(spec.observation_space, config, without=self.critic_only)
        self._critics = TwinCritics(
            spec.observation_space, config, num_inputs=num_inputs, num_values=num_values
        )
        self.parameters = (
            *self._policy.parameters(POLICY),
            *layer_parameters(
                f"{POLICY}.out",
                (self._policy.width, num_outputs),
                POLICY_GAIN,
                ortho_init=config["ortho_init"],
            ),
            *(() if spec.inference_only else self._critics.parameters),
        )
        self.acts_in_numpy = not self._policy.filters

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """See `Network.forward` and the class."""
        obs = batch[Columns.OBS]
        if POLICY_ACTIONS in batch:
            constants = {
                name: ops.stop_gradient(each) for name, each in weights.items() if name.startswith(CRITICS)
            }
            return {QF_PREDS: self._values(ops, constants, obs, batch[POLICY_ACTIONS])}
        x = self._policy.features(ops, weights, POLICY, self._policy.prepare(ops, obs))
        columns = {
            Columns.ACTION_DIST_INPUTS: self._inputs(ops, dense(ops, weights, f"{POLICY}.out", x)),
        }
        if Columns.ACTIONS in batch:
            columns[QF_PREDS] = self._values(ops, weights, obs, batch[Columns.ACTIONS])
        return columns

    @abstractmethod
    def _inputs(self, ops: Ops, outputs: Tensor) -> Tensor:
        """ACTION_DIST_INPUTS [B, inputs] of the outputs of the policy head [B, num_outputs]."""

    @abstractmethod
    def _values(self, ops: Ops, weights: Mapping[str, Tensor], obs: Tensor, actions: Tensor) -> Tensor:
        """QF_PREDS."""


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

    def _values(self, ops: Ops, weights: Mapping[str, Tensor], obs: Tensor, actions: Tensor) -> Tensor:
        rows = squashed_gaussian_class(self._action_space, ops).flatten_actions(actions)
        # The environment clips the actions of an explorer that goes beyond the bounds.
        scaled = ops.clip(self._bounds(ops).scale_actions(rows), -1.0, 1.0)
        values = self._critics.values(ops, weights, obs, scaled)
        return values if self._num_quantiles else ops.squeeze(values, -1)
