"""Indices that are tensors, and Python that goes over the entries of one."""

import numpy as np
from seeded import bug, twin
from small_learners import SmallLearner, policy_of

from plugrad import hookimpl

MASK = "boolean mask as an index"
LOOP = "iteration over values"


@bug(MASK)
def errors_of_what_goes_on(learner, batch, fwd_out):
    ops = learner.ops
    goes_on = ops.logical_not(batch["terminateds"])
    error = (fwd_out["vf_preds"] - batch["value_targets"])[goes_on]  # here
    return ops.mean(ops.square(error))


@bug(MASK, "ppo")
def only_good_actions(learner, module_id, batch, fwd_out):
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    return -learner.ops.mean(logp[batch["advantages"] > 0.0])  # here


@bug(MASK, "dqn")
def values_by_two_indices(learner, batch, fwd_out):
    ops = learner.ops
    rows = np.arange(ops.shape(batch["rewards"])[0])
    chosen = fwd_out["qf_preds"][rows, batch["actions"]]  # here
    return ops.mean(ops.huber(chosen - batch["rewards"]))


@bug(MASK)
def best_rows(learner, batch, fwd_out):
    ops = learner.ops
    best = ops.argmax(batch["advantages"], axis=0)
    return ops.square(fwd_out["vf_preds"][best] - batch["value_targets"][0])  # here


@bug(MASK)
def every_column_of_a_list(learner, batch, fwd_out):
    ops = learner.ops
    return ops.mean(ops.square(fwd_out["action_dist_inputs"][:, [1, 0]] - batch["target"]))  # here


@bug(MASK)
class ZeroesLargeGradients:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients, changed = (yield), {}
        for ref, gradient in gradients.items():
            kept = gradient + 0.0
            kept[learner.ops.abs(kept) > 0.5] = 0.0  # here
            changed[ref] = kept
        return changed


@bug(LOOP)
def row_by_row(learner, batch, fwd_out):
    ops, total = learner.ops, 0.0
    for value, target in zip(fwd_out["vf_preds"], batch["value_targets"], strict=True):  # here
        total = total + ops.square(value - target)
    return total / 6.0


@bug(LOOP, "bc")
def mean_by_len(learner, module_id, batch, fwd_out):
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    return -learner.ops.sum(logp) / len(logp)  # here


@bug(LOOP)
def sum_of_python(learner, batch, fwd_out):
    ops = learner.ops
    return sum(ops.square(fwd_out["vf_preds"] - batch["value_targets"])) / 6.0  # here


@bug(LOOP, "td3")
def two_critics_unpacked(learner, batch, fwd_out):
    ops = learner.ops
    first, second = fwd_out["qf_preds"]  # here
    return ops.mean(ops.square(ops.minimum(first, second) - batch["rewards"]))


@bug(LOOP, "appo")
def returns_from_the_end(learner, batch, fwd_out):
    ops, returns, running = learner.ops, [], 0.0
    for reward in reversed(batch["rewards"]):  # here
        running = reward + 0.99 * running
        returns.insert(0, running)
    return ops.mean(ops.square(fwd_out["vf_preds"] - ops.stack(returns)))


@bug(LOOP)
class CountsActions(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss * list(batch["weights"])[0]  # here # noqa: RUF015


@bug(LOOP)
def ends_by_membership(learner, batch, fwd_out):
    ops = learner.ops
    scale = 0.5 if True in batch["terminateds"] else 1.0  # here
    return scale * ops.mean(ops.square(fwd_out["vf_preds"] - batch["value_targets"]))


@twin(MASK)
def mean_of_what_goes_on(learner, batch, fwd_out):
    ops = learner.ops
    goes_on = 1.0 - ops.cast(batch["terminateds"], "float32")
    errors = ops.square(fwd_out["vf_preds"] - batch["value_targets"])
    return ops.sum(goes_on * errors) / ops.maximum(ops.sum(goes_on), 1.0)


@twin(MASK, "dqn")
def values_along_an_axis(learner, batch, fwd_out):
    ops = learner.ops
    indices = ops.expand_dims(ops.cast(batch["actions"], "int64"), -1)
    chosen = ops.take_along_axis(fwd_out["qf_preds"], indices)[..., 0]
    return ops.mean(ops.huber(chosen - batch["rewards"]))


@twin(LOOP)
def columns_by_number(learner, batch, fwd_out):
    ops, logits = learner.ops, fwd_out["action_dist_inputs"]
    columns = [logits[:, n] for n in range(ops.shape(logits)[1])]
    return sum(ops.mean(ops.square(column - batch["value_targets"])) for column in columns)


@twin(LOOP, "td3")
def two_critics_by_number(learner, batch, fwd_out):
    ops, values = learner.ops, fwd_out["qf_preds"]
    return ops.mean(ops.square(ops.minimum(values[0], values[1]) - batch["rewards"]))
