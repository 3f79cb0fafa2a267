"""Acting: from rows of observations to the columns of a training batch.

A module with a built-in network without convolutions computes actions in numpy, with a copy of its weights. For small
networks this is several times faster than a framework call, and it gives the same result on every backend. A module
that the backend cannot train computes in numpy anyway. Other modules act through their own forward pass.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import plugrad.numpy_ops as numpy_ops
from plugrad.action_rows import action_shape
from plugrad.batch import check_masks, refuse
from plugrad.batch.forms import as_array
from plugrad.columns import Columns
from plugrad.distributions import Distribution, mask_logits
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.acting.held_noise import HeldNoise
from plugrad.learner.acting.tensors import NoiseAhead, why_not_in_tensors
from plugrad.learner.modules.users_classes import action_distribution_class
from plugrad.learner.update.connectors import initial_state
from plugrad.learner.update.on_device import on_device
from plugrad.policy.policy import State
from plugrad.rl_module import check_numbers
from plugrad.types import Array, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner


class Actor:
    """Acts with the modules of one learner.

    Args:
        learner: a built learner.
    """

    def __init__(self, learner: "Learner") -> None:
        self._learner = learner
        self._weights: dict[ModuleID, tuple[tuple[int, int], Mapping[str, Array]]] = {}
        self._initial_states: dict[Any, State] = {}
        self._choices: dict[tuple[Any, bool], Callable[..., Any]] = {}
        self._distributions: dict[tuple[Any, bool], type[Distribution]] = {}
        self.held_noise = HeldNoise({}, {})

    def compute_actions(
        self,
        obs: Array,
        module_id: ModuleID,
        explore: bool,
        rng: np.random.Generator,
        state: State | None,
        action_mask: Array | None = None,
        *,
        values: bool = True,
    ) -> dict[str, Any]:
        """Compute the acting columns for a batch of observations, one row each.

        Args:
            obs: rows of the module's observation space, [B, ...].
            module_id: the module that acts.
            explore: True samples from the distribution; False takes its mode.
            rng: draws the samples.
            state: for a stateful module, `{name: [B, ...]}`; None: the state at the start of an episode.
            action_mask: the allowed actions, [B, choices]; None: all.
            values: False leaves VF_PREDS out. A built-in network then does not compute them.

        Returns:
            ACTIONS, ACTION_LOGP, ACTION_DIST_INPUTS and, if the module computed values, VF_PREDS; for a stateful module
            also STATE_OUT. For a module that returns ACTIONS itself, the columns that it returned.
        """
        outputs, after = self._outputs(obs, module_id, explore, rng, state, action_mask, values=values)
        if Columns.ACTIONS not in outputs:
            inputs = self._distribution_inputs(module_id, outputs, explore)
            distribution = self._distribution(module_id, inputs, explore)
            version = self._learner.weights_version
            actions = (
                self.held_noise.sample(module_id, distribution, rng, version)
                if explore
                else distribution.mode()
            )
            acted = {
                Columns.ACTIONS: actions,
                Columns.ACTION_LOGP: distribution.logp(actions),
                Columns.ACTION_DIST_INPUTS: inputs,
            }
            if values and Columns.VF_PREDS in outputs:
                acted[Columns.VF_PREDS] = outputs[Columns.VF_PREDS]
            outputs = acted
        return outputs if after is None else {**outputs, Columns.STATE_OUT: after}

    def on_device(self, obs: Any, module_id: ModuleID, explore: bool) -> Tensor:
        """Observations as the framework's tensor; not copied if they are on the learner's device.

        Args:
            obs: anything with `__dlpack__`.
            module_id: the module that acts.
            explore: whether it explores.

        Raises:
            BatchError: they are no tensor.
            ConfigError: the module is stateful or of no framework, or the algorithm explores in numpy.
        """
        if why := why_not_in_tensors(self._learner, module_id, explore):
            raise ConfigError(f"as_tensors=True: {why}: type as_tensors=False", module_id=module_id)
        return on_device(self._learner, module_id, obs)

    def compute_tensors(
        self,
        obs: Tensor,
        module_id: ModuleID,
        explore: bool,
        rng: np.random.Generator | NoiseAhead,
        action_mask: Any = None,
        *,
        values: bool = True,
    ) -> dict[str, Tensor]:
        """The columns of `compute_actions` as tensors: random numbers are copied to the device, and nothing from it.

        Args:
            obs: rows of the module's observation space, [B, ...].
            module_id: the module that acts.
            explore: True samples from the distribution; False takes its mode.
            rng: draws the random numbers.
            action_mask: the allowed actions, [B, choices]; None: all.
            values: False leaves VF_PREDS out.

        Returns:
            As `compute_actions`.
        """
        learner, module = self._learner, self._learner.module[module_id]
        ops, given = learner.ops, {Columns.OBS: obs}
        if action_mask is not None:
            given[Columns.ACTION_MASK] = action_mask
        given = learner._convert_batch_type(given)
        explores = values and explore if module.network is not None else explore
        forward = module.forward_exploration if explores else module.forward_inference
        outputs = {column: ops.stop_gradient(each) for column, each in forward(given).items()}
        if Columns.ACTIONS in outputs:
            return outputs
        inputs = outputs[Columns.ACTION_DIST_INPUTS]
        if explore:
            mask = {each: given[each] for each in (Columns.ACTION_MASK,) if each in given}
            inputs = learner._get_exploration_tensors(module_id=module_id, fwd_out={**outputs, **mask})
            if mask:
                inputs = mask_logits(ops, inputs, mask[Columns.ACTION_MASK])
        kind = action_distribution_class(module, ops, explore=explore)
        noise = None
        if explore:
            ahead = rng if isinstance(rng, NoiseAhead) else NoiseAhead(rng)
            noise = ahead.take(
                lambda: self.held_noise.noise(
                    module_id, kind.from_logits(inputs), ahead.rng, learner.weights_version
                ),
                lambda drawn: learner._convert_batch_type({"noise": drawn})["noise"],
            )
        actions, logp = self._choice(module, kind, explore)(inputs, noise)
        acted = {
            Columns.ACTIONS: actions,
            Columns.ACTION_LOGP: logp,
            Columns.ACTION_DIST_INPUTS: inputs,
        }
        if values and explore and Columns.VF_PREDS in outputs:
            acted[Columns.VF_PREDS] = outputs[Columns.VF_PREDS]
        return acted

    def _choice(self, module: Any, kind: type[Distribution], explore: bool) -> Callable[..., Any]:
        """`(inputs, noise) -> (actions, logp)`; one program, unless a user's own module chooses the distribution."""

        def choice(inputs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
            distribution = kind.from_logits(inputs)
            actions = distribution.mode() if noise is None else distribution.sample_by(noise)
            return actions, distribution.logp(actions)

        if module.network is None:
            return choice
        if (module, explore) not in self._choices:
            self._choices[module, explore] = self._learner._as_program(choice)
        return self._choices[module, explore]

    def choose_actions(
        self,
        obs: Array,
        module_id: ModuleID,
        explore: bool,
        rng: np.random.Generator,
        state: State | None,
        action_mask: Array | None = None,
        held_noise: HeldNoise | None = None,
    ) -> tuple[Array, State | None]:
        """Only ACTIONS and STATE_OUT of `compute_actions`, computed faster; STATE_OUT is None without a state."""
        outputs, after = self._outputs(obs, module_id, explore, rng, state, action_mask, values=False)
        if Columns.ACTIONS in outputs:
            return outputs[Columns.ACTIONS], after
        inputs = self._distribution_inputs(module_id, outputs, explore)
        distribution = self._distribution(module_id, inputs, explore)
        if not explore:
            return distribution.mode(), after
        held, version = self.held_noise if held_noise is None else held_noise, self._learner.weights_version
        return held.sample(module_id, distribution, rng, version), after

    def _outputs(
        self,
        obs: Array,
        module_id: ModuleID,
        explore: bool,
        rng: np.random.Generator,
        state: State | None,
        action_mask: Array | None,
        *,
        values: bool,
    ) -> tuple[dict[str, Any], State | None]:
        """The module's outputs, with ACTION_MASK and masked ACTION_DIST_INPUTS; and its STATE_OUT."""
        module = self._learner.module[module_id]
        before = _state(self._initial_state(module), module_id, state, len(obs))
        batch = {Columns.OBS: obs[:, None], Columns.STATE_IN: before} if before else {Columns.OBS: obs}
        mask = None if action_mask is None else _checked_mask(module, module_id, action_mask, len(obs))
        if mask is not None:
            batch[Columns.ACTION_MASK] = mask[:, None] if before else mask
        outputs = self._forward(module, module_id, batch, rng, explore=explore, values=values and explore)
        after = outputs.pop(Columns.STATE_OUT, None)
        if (own := outputs.get(Columns.ACTIONS)) is not None and not isinstance(own, np.ndarray):
            width = ", ".join(map(str, action_shape(module.action_space) or ()))
            raise BatchError(
                f"module {module_id!r} ({module.class_name}) returned the column 'actions' as a "
                f"{type(own).__name__} of {len(own)} parts: expected one array of rows [B, {width}] for "
                f"{module.action_space}, the parts flat and side by side in the order of the space, choices from 0",
                module_id=module_id,
                column=Columns.ACTIONS,
            )
        if before:
            outputs = {column: each[:, 0] for column, each in outputs.items()}
        if mask is not None and Columns.ACTIONS not in outputs:
            outputs[Columns.ACTION_MASK] = mask
            masked = mask_logits(numpy_ops, outputs[Columns.ACTION_DIST_INPUTS], mask)
            outputs[Columns.ACTION_DIST_INPUTS] = masked
        return outputs, after

    def _distribution_inputs(self, module_id: ModuleID, outputs: Mapping[str, Array], explore: bool) -> Array:
        if not explore:
            return outputs[Columns.ACTION_DIST_INPUTS]
        inputs: Array = self._learner._get_exploration_inputs(module_id=module_id, fwd_out=outputs)
        mask = outputs.get(Columns.ACTION_MASK)
        return inputs if mask is None else mask_logits(numpy_ops, inputs, mask)

    def _distribution(self, module_id: ModuleID, inputs: Array, explore: bool) -> Distribution:
        module = self._learner.module[module_id]
        if module.network is None:  # a user's own module may return another class each time
            return action_distribution_class(module, numpy_ops, explore=explore).from_logits(inputs)
        if (key := (module, explore)) not in self._distributions:
            self._distributions[key] = action_distribution_class(module, numpy_ops, explore=explore)
        return self._distributions[key].from_logits(inputs)

    def compute_values(self, obs: Array, module_id: ModuleID, state: State | None) -> Array:
        """State values of observations.

        Args:
            obs: [B, ...]; for a stateful module [B, T, ...].
            module_id: a module with a value function.
            state: the state before the first step, `{name: [B, ...]}`; None: the state at the start of an episode.

        Returns:
            float32 [B]; for a stateful module [B, T].
        """
        module = self._learner.module[module_id]
        before = _state(self._initial_state(module), module_id, state, len(obs))
        batch = {Columns.OBS: obs, Columns.STATE_IN: before} if before else {Columns.OBS: obs}
        if _acts_in_numpy(module):
            values: Array = self._forward_in_numpy(module, module_id, batch, value=True)[Columns.VF_PREDS]
            return values
        converted = self._learner._convert_batch_type(batch)
        values = self._learner._convert_to_numpy(module.compute_values(converted))
        return values

    def compute_value_tensors(self, obs: Tensor, module_id: ModuleID) -> Tensor:
        """`compute_values` of a module without a state, where the tensors are.

        Args:
            obs: a tensor [B, ...].
            module_id: a module with a value function.

        Returns:
            float32 [B], without a gradient.
        """
        learner = self._learner
        converted = learner._convert_batch_type({Columns.OBS: obs})
        return learner.ops.stop_gradient(learner.module[module_id].compute_values(converted))

    def _forward(
        self,
        module: Any,
        module_id: ModuleID,
        batch: dict[str, Any],
        rng: np.random.Generator,
        *,
        explore: bool,
        values: bool,
    ) -> dict[str, Any]:
        if _acts_in_numpy(module):
            return self._forward_in_numpy(module, module_id, batch, value=values)
        # A built-in network explores with the outputs that it infers with: only its values are more.
        explores = values if module.network is not None else explore
        forward = module.forward_exploration if explores else module.forward_inference
        if module_id not in self._learner.trainable_module_ids:
            return dict(forward(batch, rng=rng))
        converted: dict[str, Any] = self._learner._convert_to_numpy(
            forward(self._learner._convert_batch_type(batch))
        )
        return converted if module.network is not None else check_numbers(module.class_name, converted)

    def _forward_in_numpy(
        self, module: Any, module_id: ModuleID, batch: dict[str, Any], *, value: bool
    ) -> dict[str, Any]:
        weights, obs = self._weights_of(module, module_id), batch[Columns.OBS]
        if obs.dtype == np.float64:
            batch = {**batch, Columns.OBS: obs.astype(np.float32)}
        outputs: dict[str, Any] = module.network.forward(numpy_ops, weights, batch, value=value)
        return outputs

    def _initial_state(self, module: Any) -> State:
        if module.network is None:  # a user's own module may learn it
            return initial_state(module)
        if module not in self._initial_states:
            self._initial_states[module] = initial_state(module)
        return self._initial_states[module]

    def _weights_of(self, module: Any, module_id: ModuleID) -> Mapping[str, Array]:
        version = self._learner.weights_version, module._count_changes()
        if self._weights.get(module_id, (None,))[0] != version:
            # The memory order affects the last bit of a product, so all weights get the same order.
            weights = {name: np.asarray(each, order="C") for name, each in module._acting_weights().items()}
            self._weights[module_id] = version, weights
        return self._weights[module_id][1]


def _acts_in_numpy(module: Any) -> bool:
    return module.network is not None and bool(module.network.acts_in_numpy)


def _state(initial: State, module_id: ModuleID, state: State | None, rows: int) -> dict[str, Array]:
    """The given state, checked; or the initial state for each row; empty for a module without a state."""
    if state is None and not initial:
        return {}
    if state is None:
        return {name: np.broadcast_to(value, (rows, *value.shape)) for name, value in initial.items()}
    if set(state) != set(initial):
        expected = f"{', '.join(initial)}" if initial else "no state: the module is not stateful"
        refuse(module_id, "state", expected, ", ".join(state) or "none")
    for name, value in initial.items():
        if np.shape(state[name]) != (rows, *value.shape):
            expected = f"shape {[rows, *value.shape]}, a row per observation"
            refuse(module_id, f"state/{name}", expected, f"shape {list(np.shape(state[name]))}")
    return {name: np.asarray(state[name], value.dtype) for name, value in initial.items()}


def _checked_mask(module: Any, module_id: ModuleID, action_mask: Any, rows: int) -> Array:
    """The mask as bool [B, choices]."""
    mask = as_array(module_id, Columns.ACTION_MASK, action_mask)
    check_masks(module_id, {Columns.ACTION_MASK: mask}, module.action_space, leading=(rows,))
    return np.asarray(mask, bool)
