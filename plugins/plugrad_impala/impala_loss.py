"""The loss of IMPALA, over ops. Equations are those of the paper.

Reference: Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures", arXiv:1802.01561, section 4.2.
"""

from collections.abc import Mapping

from plugrad import Columns, LearnerProtocol
from plugrad.losses import check_one_per_row, mean_over_rows, value_loss, vtrace_policy_gradient
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_impala.vtrace import vtrace_of_sequences


def impala_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The policy gradient with V-trace's advantages, half the squared error of the values, and the entropy bonus.

    Args:
        learner: gives ops and the module, and takes metrics.
        module_id: whose loss.
        config: vf_loss_coeff, entropy_coeff, and what `vtrace_of_sequences` reads.
        batch: actions, action_logp [B, T] of the policy mu that acted, and what `vtrace_of_sequences` reads.
        fwd_out: action_dist_inputs [B, T, inputs] and vf_preds [B, T] of the present weights.

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per step, and would broadcast.
    """
    ops, values = learner.ops, fwd_out[Columns.VF_PREDS]
    dist_class = learner.module[module_id].get_train_action_dist_cls()
    policy = dist_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
    logp = policy.logp(batch[Columns.ACTIONS])
    check_one_per_row(ops, module_id, batch, Columns.ACTION_LOGP, like=logp)
    check_one_per_row(ops, module_id, fwd_out, Columns.VF_PREDS, like=logp)
    rhos = ops.exp(ops.stop_gradient(logp) - ops.cast(batch[Columns.ACTION_LOGP], "float32"))
    vs, advantages = vtrace_of_sequences(learner, module_id, config, batch, values, rhos)
    means = {
        "policy_loss": mean_over_rows(ops, vtrace_policy_gradient(ops, logp, advantages), batch),
        "vf_loss": mean_over_rows(ops, value_loss(ops, values, vs), batch),
        "entropy": mean_over_rows(ops, policy.entropy(), batch),
        "mean_rho": mean_over_rows(ops, rhos, batch),
    }
    learner.register_metrics(module_id, {name: ops.stop_gradient(mean) for name, mean in means.items()})
    value_error = config.vf_loss_coeff * means["vf_loss"]
    return means["policy_loss"] + value_error - config.entropy_coeff * means["entropy"]
