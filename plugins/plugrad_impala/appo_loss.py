"""The loss of APPO, over ops.

Reference: Luo et al. 2020, "IMPACT: Importance Weighted Asynchronous Architectures with Clipped Target Networks",
arXiv:1912.00167, section 3.1.
"""

from collections.abc import Mapping

from plugrad import Columns, LearnerProtocol
from plugrad.losses import check_one_per_row, clipped_surrogate, mean_over_rows, value_loss
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_impala.vtrace import vtrace_of_sequences
from plugrad_ppo import KL_KEY


def appo_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The clipped surrogate on V-trace's advantages, half the squared error of the values, and the entropy bonus.

    There are three policies: pi, which is trained; mu, which acted; and the target network's, which changes only when
    the target network is updated. V-trace corrects from mu to the target network.

    Args:
        learner: gives ops, the module and its target network, and takes metrics.
        module_id: whose loss.
        config: clip_param, target_worker_clipping, vf_loss_coeff, entropy_coeff, use_kl_loss, kl_coeff, and what
            `vtrace_of_sequences` reads.
        batch: obs, actions, action_logp [B, T] of mu, and what `vtrace_of_sequences` reads.
        fwd_out: action_dist_inputs [B, T, inputs] and vf_preds [B, T] of the present weights.

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per step, and would broadcast.
    """
    ops, values = learner.ops, fwd_out[Columns.VF_PREDS]
    dist_class = learner.module[module_id].get_train_action_dist_cls()
    policy = dist_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
    target_out = learner.targets[module_id].forward(batch)
    target = dist_class.from_logits(target_out[Columns.ACTION_DIST_INPUTS])
    logp, target_logp = (each.logp(batch[Columns.ACTIONS]) for each in (policy, target))
    check_one_per_row(ops, module_id, batch, Columns.ACTION_LOGP, like=logp)
    check_one_per_row(ops, module_id, fwd_out, Columns.VF_PREDS, like=logp)
    mu_logp = ops.cast(batch[Columns.ACTION_LOGP], "float32")
    rhos = ops.exp(target_logp - mu_logp)
    vs, advantages = vtrace_of_sequences(learner, module_id, config, batch, values, rhos)
    to_mu = ops.minimum(ops.exp(mu_logp - target_logp), config.target_worker_clipping)
    # About pi / target; the bound is for actions that mu takes and the target network hardly ever would.
    ratio = to_mu * ops.exp(logp - mu_logp)
    rows = {
        "policy_loss": -clipped_surrogate(ops, ratio, advantages, config.clip_param),
        "vf_loss": value_loss(ops, values, vs),
        "entropy": policy.entropy(),
        "mean_rho": rhos,
    }
    if config.use_kl_loss:
        rows[KL_KEY] = target.kl(policy)
    means = {name: mean_over_rows(ops, each, batch) for name, each in rows.items()}
    learner.register_metrics(module_id, {name: ops.stop_gradient(mean) for name, mean in means.items()})
    value_error = config.vf_loss_coeff * means["vf_loss"]
    loss = means["policy_loss"] + value_error - config.entropy_coeff * means["entropy"]
    return loss + config.kl_coeff * means[KL_KEY] if config.use_kl_loss else loss
