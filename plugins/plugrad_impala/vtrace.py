"""V-trace of a minibatch of sequences, over ops.

Reference: Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures", arXiv:1802.01561, sections 4.1 and 4.2.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad import Columns, LearnerProtocol
from plugrad.errors import BatchError
from plugrad.losses import check_one_per_row, vtrace
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_impala.connectors import BOOTSTRAP_OBS


def vtrace_of_sequences(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    values: Tensor,
    rhos: Tensor,
) -> tuple[Tensor, Tensor]:
    """The value targets `v_s` and the advantages of the policy gradient, by `plugrad.losses.vtrace`.

    No gradient flows through either.

    Args:
        learner: gives ops and the module.
        module_id: whose sequences.
        config: gamma, lambda_, vtrace_clip_rho_threshold, vtrace_clip_pg_rho_threshold.
        batch: what `VTraceSequences` made: rewards and terminateds [B, T], seq_lens [B] unless all have T steps, and
            bootstrap_obs. Or new_obs [B, T, ...] in its place, with truncateds [B, T]: then episodes may be cut off
            within a sequence.
        values: of the observations, by the present weights [B, T].
        rhos: importance ratios `pi(a|x) / mu(a|x)` [B, T].

    Returns:
        `(vs, pg_advantages)`, [B, T].

    Raises:
        BatchError: a column does not have one number per step, and would broadcast.
    """
    ops = learner.ops
    if len(ops.shape(values)) != 2:
        raise BatchError(
            f"module {module_id!r}, column 'obs': expected sequences [B, T, ...] with 'seq_lens' [B], found "
            "rows [B, ...]: V-trace needs the order of the steps. Give update(episodes=...), or "
            "make sequences of the columns",
            module_id=module_id,
            column=Columns.OBS,
        )
    check_one_per_row(ops, module_id, batch, Columns.REWARDS, Columns.TERMINATEDS, like=values)
    terminated = ops.cast(batch[Columns.TERMINATEDS], "bool")
    if Columns.SEQ_LENS in batch:
        steps = ops.asarray(np.arange(1, ops.shape(values)[1] + 1, dtype=np.int32)[None])
        is_last = steps >= ops.expand_dims(ops.cast(batch[Columns.SEQ_LENS], "int32"), -1)
    else:
        is_last = ops.concat([ops.zeros_like(terminated[:, 1:]), ops.ones_like(terminated[:, :1])], 1)
    ends = ops.logical_or(is_last, terminated)
    if BOOTSTRAP_OBS in batch or Columns.NEXT_OBS not in batch or learner.module[module_id].is_stateful:
        behind = ops.expand_dims(_bootstrap_values(learner, module_id, batch), -1)
        later = ops.where(is_last, behind, ops.concat([values[:, 1:], behind], 1))
    else:
        check_one_per_row(ops, module_id, batch, Columns.TRUNCATEDS, like=values)
        ends = ops.logical_or(ends, ops.cast(batch[Columns.TRUNCATEDS], "bool"))
        # Where no episode ends, these are the values of the next steps.
        later = learner.module[module_id].compute_values({Columns.OBS: batch[Columns.NEXT_OBS]})
    next_values = ops.where(terminated, 0.0, later)
    rewards = ops.cast(batch[Columns.REWARDS], "float32")
    columns = (rewards, values, next_values, rhos, ends)
    r, v, next_v, ratios, stops = (ops.permute_dims(ops.stop_gradient(each), (1, 0)) for each in columns)
    found = vtrace(
        ops,
        r,
        v,
        next_v,
        ratios,
        stops,
        config.gamma,
        config.lambda_,
        clip_rho_threshold=config.vtrace_clip_rho_threshold,
        clip_pg_rho_threshold=config.vtrace_clip_pg_rho_threshold,
    )
    vs, advantages = (ops.permute_dims(each, (1, 0)) for each in found)
    return vs, advantages


def _bootstrap_values(learner: LearnerProtocol, module_id: ModuleID, batch: Mapping[str, Tensor]) -> Tensor:
    """V of the observation behind each sequence [B]; of a stateful module in the state after its last step."""
    ops, module = learner.ops, learner.module[module_id]
    seen: dict[str, Any] = {Columns.OBS: batch[BOOTSTRAP_OBS]}
    if not module.is_stateful:
        return module.compute_values(seen)[:, 0]
    values = module.compute_values({**seen, Columns.STATE_IN: batch[Columns.STATE_IN]})
    place = ops.one_hot(ops.cast(batch[Columns.SEQ_LENS], "int64"), ops.shape(values)[1])
    return ops.sum(values * place, 1)
