"""Pure losses over ops: arrays in, a value per row out, under the names of their papers.

They know no learner, no config and no batch, except those with a name (`named_loss`), and a loss is written once for
every backend. An algorithm's loss computes their inputs, calls them, and averages with `mean_over_rows`:

    surrogate = losses.clipped_surrogate(ops, ratio, advantages, clip_param=0.2)
    error = losses.value_loss(ops, fwd_out["vf_preds"], batch["value_targets"])
    return losses.mean_over_rows(ops, 0.5 * error - surrogate, batch)

Inputs are float32 tensors of one shape, [B] or [B, T] unless said otherwise; what has another shape would broadcast
without an error, so check columns with `check_one_per_row`. Gradients flow through every input that a docstring does
not call a constant. Coefficients are numbers or scalar tensors.
"""

from plugrad.losses.aggregation import Aggregation, agg_mask
from plugrad.losses.named import Loss, find_loss, named_loss
from plugrad.losses.pure import (
    advantage_weight,
    capped_value_loss,
    check_one_per_row,
    clipped_surrogate,
    clipped_value_loss,
    cql_penalty,
    critic_loss,
    expectile_loss,
    grpo_surrogate,
    kl_penalty,
    marwil_weight,
    mean_over_rows,
    quantile_huber_loss,
    sac_discrete_policy_loss,
    sac_discrete_value,
    sac_policy_loss,
    sac_temperature_loss,
    sac_value,
    td_targets,
    value_loss,
    vtrace_policy_gradient,
)
from plugrad.losses.targets import generalized_advantage_estimation, n_step_returns, vtrace

__all__ = [
    "Aggregation",
    "Loss",
    "advantage_weight",
    "agg_mask",
    "capped_value_loss",
    "check_one_per_row",
    "clipped_surrogate",
    "clipped_value_loss",
    "cql_penalty",
    "critic_loss",
    "expectile_loss",
    "find_loss",
    "generalized_advantage_estimation",
    "grpo_surrogate",
    "kl_penalty",
    "marwil_weight",
    "mean_over_rows",
    "n_step_returns",
    "named_loss",
    "quantile_huber_loss",
    "sac_discrete_policy_loss",
    "sac_discrete_value",
    "sac_policy_loss",
    "sac_temperature_loss",
    "sac_value",
    "td_targets",
    "value_loss",
    "vtrace",
    "vtrace_policy_gradient",
]
