"""Plain models for SAC and TD3: an actor `pi` and two critics, `qf1` and `qf2`, which a framework's own model has.

A user's `torch.nn.Module`, Keras model or `nnx.Module` with these attributes becomes a module of the algorithm. The
algorithm adds what is no part of a network: a temperature, the bounds of standard deviations, the noise that explores.
"""

from collections.abc import Mapping
from math import log, prod
from typing import Any, ClassVar

import gymnasium as gym

from plugrad import Columns
from plugrad.distributions import LOG_STD_BOUNDS, Distribution, squashed_gaussian_class
from plugrad.rl_module.parts_module import PartsModule
from plugrad.spaces import array_space
from plugrad.types import Tensor
from plugrad_sac.networks import POLICY, POLICY_ACTIONS, QF_PREDS
from plugrad_sac.sac_networks import LOG_ALPHA
from plugrad_sac.td3_networks import deterministic_inputs
from plugrad_sac.twin_critics import CRITICS


class PlainActorCritic(PartsModule, has_modes=False):
    """What plain models of SAC and TD3 have in common. It computes as `PolicyAndCritics` does."""

    part_names = (POLICY, f"{CRITICS}1", f"{CRITICS}2")
    outputs_per_dimension: ClassVar[int]
    """Numbers that `pi` returns for each dimension of an action in a Box."""

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        obs = batch[Columns.OBS]
        if POLICY_ACTIONS in batch:
            with self.without_gradient(CRITICS):
                return {QF_PREDS: self._values(obs, batch[POLICY_ACTIONS])}
        columns = {Columns.ACTION_DIST_INPUTS: self._inputs(self._policy_outputs(obs))}
        if Columns.ACTIONS in batch:
            columns[QF_PREDS] = self._values(obs, batch[Columns.ACTIONS])
        return columns

    def _inputs(self, outputs: Tensor) -> Tensor:
        """ACTION_DIST_INPUTS of what `pi` returned."""
        raise NotImplementedError

    @property
    def _num_choices(self) -> int | None:
        """How many discrete actions there are; None for a Box."""
        space: Any = array_space(self.action_space)
        return int(space.n) if isinstance(space, gym.spaces.Discrete) else None

    def _policy_outputs(self, obs: Tensor) -> Tensor:
        space: Any = array_space(self.action_space)
        width = self._num_choices or self.outputs_per_dimension * prod(space.shape)
        return self.checked_part(POLICY, getattr(self, POLICY)(obs), (width,))

    def _values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """QF_PREDS [2, B]; [2, B, actions] of all discrete actions."""
        inner = () if self._num_choices is None else (self._num_choices,)
        inputs = (obs, actions) if self._num_choices is None else (obs,)
        values = [
            self.checked_part(name, getattr(self, name)(*inputs), inner) for name in self.part_names[1:]
        ]
        return self.ops.stack(values)


class PlainSAC(PlainActorCritic, has_modes=False):
    """A plain model that SAC trains: `pi` returns means, then logs of standard deviations; for Discrete, logits."""

    outputs_per_dimension = 2

    def configure(self, config: Any) -> None:
        """Add the temperature."""
        setattr(self, LOG_ALPHA, self.new_scalar(log(config.initial_alpha)))

    def get_train_action_dist_cls(self) -> type[Distribution]:
        """A squashed Gaussian for a Box."""
        if self._num_choices is None:
            space: Any = self.action_space
            return squashed_gaussian_class(space, self.ops)
        return super().get_train_action_dist_cls()

    def _forward(self, batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        columns = super()._forward(batch, **kwargs)
        if Columns.ACTIONS in batch and POLICY_ACTIONS not in batch:
            columns[LOG_ALPHA] = self.ops.reshape(getattr(self, LOG_ALPHA), ())
        return columns

    def _inputs(self, outputs: Tensor) -> Tensor:
        if self._num_choices is not None:
            return outputs
        half = outputs.shape[-1] // 2
        means, log_stds = self.ops.split(outputs, (half, half), -1)
        return self.ops.concat([means, self.ops.clip(log_stds, *LOG_STD_BOUNDS)], -1)


class PlainTD3(PlainActorCritic, has_modes=False):
    """A plain model that TD3 trains: `pi` returns any numbers, which are squashed into the bounds of the actions."""

    outputs_per_dimension = 1
    _exploration_noise: float

    def configure(self, config: Any) -> None:
        """Take the noise of exploring actions."""
        self._exploration_noise = config.exploration_noise

    def _inputs(self, outputs: Tensor) -> Tensor:
        space: Any = self.action_space
        bounds = squashed_gaussian_class(gym.spaces.flatten_space(space), self.ops)
        return deterministic_inputs(self.ops, bounds, outputs, self._exploration_noise)
