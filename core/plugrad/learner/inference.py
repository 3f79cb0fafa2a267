"""Acting: what a simulator needs to make a batch, in numpy.

A module over a built-in network without convolutions acts in numpy with a copy of its weights: for small networks
that is several times cheaper than a framework's call, and equal on every backend. Other modules act through their own
forward pass.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import plugrad.numpy_ops as numpy_ops
from plugrad.columns import Columns
from plugrad.distributions import distribution_class
from plugrad.types import Array, ModuleID


class Actor:
    """Acts with the modules of one learner.

    Args:
        learner: a built learner.
    """

    def __init__(self, learner: Any) -> None:
        self._learner = learner
        self._weights: dict[ModuleID, tuple[int, Mapping[str, Array]]] = {}

    def compute_actions(
        self, obs: Array, module_id: ModuleID, explore: bool, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Columns ACTIONS, ACTION_LOGP, ACTION_DIST_INPUTS and, if the module has values, VF_PREDS; rows as `obs`."""
        module = self._learner.module[module_id]
        outputs = self._forward(module, module_id, {Columns.OBS: obs}, explore=explore)
        inputs = outputs[Columns.ACTION_DIST_INPUTS]
        if explore:
            inputs = self._learner._get_exploration_inputs(module_id=module_id, fwd_out=outputs)
        distribution = distribution_class(module.action_space, numpy_ops).from_logits(inputs)
        actions = distribution.sample(rng) if explore else distribution.mode()
        columns = {
            Columns.ACTIONS: actions,
            Columns.ACTION_LOGP: distribution.logp(actions),
            Columns.ACTION_DIST_INPUTS: inputs,
        }
        if Columns.VF_PREDS in outputs:
            columns[Columns.VF_PREDS] = outputs[Columns.VF_PREDS]
        return columns

    def compute_values(self, obs: Array, module_id: ModuleID) -> Array:
        """State values [B], float32."""
        module = self._learner.module[module_id]
        if _acts_in_numpy(module):
            outputs = self._forward(module, module_id, {Columns.OBS: obs}, explore=True)
            return outputs[Columns.VF_PREDS]
        batch = self._learner._convert_batch_type({Columns.OBS: obs})
        values: Array = self._learner._convert_to_numpy(module.compute_values(batch))
        return values

    def _forward(
        self, module: Any, module_id: ModuleID, batch: dict[str, Array], *, explore: bool
    ) -> dict[str, Array]:
        if _acts_in_numpy(module):
            weights = self._weights_of(module, module_id)
            outputs: dict[str, Array] = module.network.forward(
                numpy_ops, weights, _float32(batch), value=explore
            )
            return outputs
        forward = module.forward_exploration if explore else module.forward_inference
        converted: dict[str, Array] = self._learner._convert_to_numpy(
            forward(self._learner._convert_batch_type(batch))
        )
        return converted

    def _weights_of(self, module: Any, module_id: ModuleID) -> Mapping[str, Array]:
        version = self._learner.weights_version
        if self._weights.get(module_id, (None,))[0] != version:
            self._weights[module_id] = version, module.get_state()
        return self._weights[module_id][1]


def _acts_in_numpy(module: Any) -> bool:
    return module.network is not None and bool(module.network.acts_in_numpy)


def _float32(batch: Mapping[str, Array]) -> dict[str, Array]:
    return {
        column: values.astype(np.float32) if values.dtype == np.float64 else values
        for column, values in batch.items()
    }
