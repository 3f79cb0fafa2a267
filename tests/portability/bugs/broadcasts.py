"""[B] meets [B, 1]: every row meets every other, and the mean is that of another loss."""

from seeded import bug, twin
from small_learners import policy_of

from plugrad.losses import mean_over_rows

KIND = "wrong broadcast"


@bug(KIND)
def targets_in_a_column(learner, batch, fwd_out):
    error = fwd_out["vf_preds"] - batch["target"]  # here
    return learner.ops.mean(learner.ops.square(error))


@bug(KIND, "dqn")
def chosen_values_in_a_column(learner, batch, fwd_out):
    ops = learner.ops
    actions = ops.expand_dims(ops.cast(batch["actions"], "int64"), -1)
    chosen = ops.take_along_axis(fwd_out["qf_preds"], actions)
    return ops.mean(ops.huber(chosen - batch["rewards"]))  # here


@bug(KIND, "ppo, continuous")
def one_action_is_a_column(learner, batch, fwd_out):
    means = fwd_out["action_dist_inputs"][:, 0]
    error = learner.ops.square(batch["actions"] - means)  # here
    return learner.ops.mean(error)


@bug(KIND, "ppo")
def advantages_with_kept_dimensions(learner, module_id, batch, fwd_out):
    ops = learner.ops
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    advantages = ops.sum(ops.stack([batch["rewards"], batch["advantages"]], axis=1), axis=1, keepdims=True)
    return -ops.mean(logp * advantages)  # here


@bug(KIND)
def product_of_a_layer(learner, batch, fwd_out):
    ops = learner.ops
    values = ops.matmul(batch["obs"], ops.ones((3, 1)))
    return ops.mean(ops.square(values + fwd_out["vf_preds"]))  # here


@bug(KIND, "bc")
def rows_scaled_in_a_column(learner, module_id, batch, fwd_out):
    ops = learner.ops
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    weights = ops.reshape(batch["weights"], (-1, 1))
    return -ops.mean(ops.minimum(logp, ops.log(weights)))  # here


@bug(KIND)
def condition_in_a_column(learner, batch, fwd_out):
    ops = learner.ops
    ends = ops.expand_dims(batch["terminateds"], 1)
    values = ops.where(ends, ops.zeros_like(batch["rewards"]), fwd_out["vf_preds"])  # here
    return ops.mean(ops.square(values - batch["value_targets"]))


@bug(KIND, "sac")
def twin_critics_against_a_column(learner, batch, fwd_out):
    ops = learner.ops
    error = ops.min(fwd_out["qf_preds"], axis=0) - ops.expand_dims(batch["rewards"], -1)  # here
    return ops.mean(ops.square(error))


@bug(KIND, "appo")
def ratio_against_a_column(learner, module_id, batch, fwd_out):
    ops = learner.ops
    old = ops.reshape(policy_of(learner, module_id, batch).logp(batch["actions"]), (-1, 1))
    ratio = ops.exp(policy_of(learner, module_id, fwd_out).logp(batch["actions"]) - old)  # here
    return -ops.mean(ops.mean(ratio, axis=-1) * batch["advantages"])


@bug(KIND)
def standardised_per_row(learner, batch, fwd_out):
    ops = learner.ops
    logits = fwd_out["action_dist_inputs"]
    spread = ops.std(logits, axis=-1, keepdims=True) + 1.0
    return ops.mean(ops.square(fwd_out["vf_preds"] / spread))  # here


@twin(KIND)
def targets_in_a_row(learner, batch, fwd_out):
    ops = learner.ops
    return ops.mean(ops.square(fwd_out["vf_preds"] - ops.reshape(batch["target"], (-1,))))


@twin(KIND)
def columns_with_kept_dimensions(learner, batch, fwd_out):
    ops, logits = learner.ops, fwd_out["action_dist_inputs"]
    centred = logits - ops.mean(logits, axis=-1, keepdims=True)
    weighed = centred * ops.expand_dims(batch["rewards"], -1) - ops.mean(logits, axis=0)
    return ops.mean(ops.square(weighed))


@twin(KIND)
def all_pairs_of_rows(learner, batch, fwd_out):
    ops, values = learner.ops, fwd_out["vf_preds"]
    pairs = ops.expand_dims(values, 1) - ops.expand_dims(batch["value_targets"], 0)
    return ops.mean(ops.square(pairs))


@twin(KIND)
def rows_against_atoms(learner, batch, fwd_out):
    ops = learner.ops
    atoms = ops.asarray([-1.0, -0.5, 0.0, 0.5, 1.0])
    return mean_over_rows(
        ops, ops.min(ops.abs(ops.expand_dims(fwd_out["vf_preds"], -1) - atoms), axis=-1), batch
    )
