"""The loss of PQN, over ops.

Reference: Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning", arXiv:2407.04811, algorithm 1.
"""

from collections.abc import Mapping

from plugrad import Columns, LearnerProtocol
from plugrad.losses import check_one_per_row
from plugrad.types import ModuleID, Tensor
from plugrad_dqn import QF_PREDS, mean_q_loss


def pqn_loss(
    learner: LearnerProtocol, module_id: ModuleID, batch: Mapping[str, Tensor], fwd_out: Mapping[str, Tensor]
) -> Tensor:
    """Half the mean squared error between `Q(s, a)` and its target.

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        batch: actions [B], value_targets [B]; `weights` [B] if some rows count more.
        fwd_out: qf_preds [B, actions].

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    actions = ops.expand_dims(ops.cast(batch[Columns.ACTIONS], "int64"), -1)
    q_values = ops.take_along_axis(fwd_out[QF_PREDS], actions)[..., 0]
    check_one_per_row(ops, module_id, batch, Columns.VALUE_TARGETS, like=q_values)
    errors = q_values - ops.cast(batch[Columns.VALUE_TARGETS], "float32")
    return mean_q_loss(learner, module_id, batch, 0.5 * ops.square(errors), q_values, errors)
