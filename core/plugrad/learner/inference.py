"""Acting: what a simulator needs to make a batch, in numpy.

A module over a built-in network without convolutions acts in numpy with a copy of its weights: for small networks
that is several times cheaper than a framework's call, and equal on every backend. A module that the backend cannot
train computes in numpy anyway. Other modules act through their own forward pass.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import plugrad.numpy_ops as numpy_ops
from plugrad.batch import refuse
from plugrad.columns import Columns
from plugrad.distributions import distribution_class
from plugrad.learner.connectors import initial_state
from plugrad.learner.internals import LearnerInternals
from plugrad.types import Array, ModuleID

State = Mapping[str, Array]


class Actor:
    """Acts with the modules of one learner.

    Args:
        learner: a built learner.
    """

    def __init__(self, learner: LearnerInternals) -> None:
        self._learner = learner
        self._weights: dict[ModuleID, tuple[tuple[int, int], Mapping[str, Array]]] = {}

    def compute_actions(
        self, obs: Array, module_id: ModuleID, explore: bool, rng: np.random.Generator, state: State | None
    ) -> dict[str, Any]:
        """Columns ACTIONS, ACTION_LOGP, ACTION_DIST_INPUTS and, if the module has values, VF_PREDS; rows as `obs`.

        Of a stateful module also STATE_OUT. A module that gives ACTIONS itself has the columns that it gives.
        """
        module = self._learner.module[module_id]
        before = _state(module, module_id, state, len(obs))
        batch = {Columns.OBS: obs[:, None], Columns.STATE_IN: before} if before else {Columns.OBS: obs}
        outputs = self._forward(module, module_id, batch, rng, explore=explore)
        after = outputs.pop(Columns.STATE_OUT, None)
        if before:
            outputs = {column: values[:, 0] for column, values in outputs.items()}
        columns = outputs if Columns.ACTIONS in outputs else self._sampled(module_id, outputs, rng, explore)
        return columns if after is None else {**columns, Columns.STATE_OUT: after}

    def _sampled(
        self, module_id: ModuleID, outputs: Mapping[str, Array], rng: np.random.Generator, explore: bool
    ) -> dict[str, Any]:
        inputs = outputs[Columns.ACTION_DIST_INPUTS]
        if explore:
            inputs = self._learner._get_exploration_inputs(module_id=module_id, fwd_out=outputs)
        space: Any = self._learner.module[module_id].action_space
        distribution = distribution_class(space, numpy_ops).from_logits(inputs)
        actions = distribution.sample(rng) if explore else distribution.mode()
        columns = {
            Columns.ACTIONS: actions,
            Columns.ACTION_LOGP: distribution.logp(actions),
            Columns.ACTION_DIST_INPUTS: inputs,
        }
        if Columns.VF_PREDS in outputs:
            columns[Columns.VF_PREDS] = outputs[Columns.VF_PREDS]
        return columns

    def compute_values(self, obs: Array, module_id: ModuleID, state: State | None) -> Array:
        """State values [B], float32; of a stateful module [B, T]."""
        module = self._learner.module[module_id]
        before = _state(module, module_id, state, len(obs))
        batch = {Columns.OBS: obs, Columns.STATE_IN: before} if before else {Columns.OBS: obs}
        if _acts_in_numpy(module):
            values: Array = self._in_numpy(module, module_id, batch, value=True)[Columns.VF_PREDS]
            return values
        converted = self._learner._convert_batch_type(batch)
        values = self._learner._convert_to_numpy(module.compute_values(converted))
        return values

    def _forward(
        self,
        module: Any,
        module_id: ModuleID,
        batch: dict[str, Any],
        rng: np.random.Generator,
        *,
        explore: bool,
    ) -> dict[str, Any]:
        if _acts_in_numpy(module):
            return self._in_numpy(module, module_id, batch, value=explore)
        forward = module.forward_exploration if explore else module.forward_inference
        if module_id not in self._learner.trainable_module_ids:
            return dict(forward(batch, rng=rng))
        converted: dict[str, Any] = self._learner._convert_to_numpy(
            forward(self._learner._convert_batch_type(batch))
        )
        return converted

    def _in_numpy(
        self, module: Any, module_id: ModuleID, batch: dict[str, Any], *, value: bool
    ) -> dict[str, Any]:
        weights = self._weights_of(module, module_id)
        outputs: dict[str, Any] = module.network.forward(numpy_ops, weights, _float32(batch), value=value)
        return outputs

    def _weights_of(self, module: Any, module_id: ModuleID) -> Mapping[str, Array]:
        version = self._learner.weights_version, module._num_loads
        if self._weights.get(module_id, (None,))[0] != version:
            self._weights[module_id] = version, module.get_state()
        return self._weights[module_id][1]


def _acts_in_numpy(module: Any) -> bool:
    return module.network is not None and bool(module.network.acts_in_numpy)


def _float32(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        column: values.astype(np.float32) if getattr(values, "dtype", None) == np.float64 else values
        for column, values in batch.items()
    }


def _state(module: Any, module_id: ModuleID, state: State | None, rows: int) -> dict[str, Array]:
    """The state given, checked, or the initial one for each row; empty for a module without a state."""
    initial = initial_state(module)
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
