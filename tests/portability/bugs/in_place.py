"""A tensor is changed in place: numpy and torch let you, and a traced program of another framework cannot."""

from seeded import bug, twin
from small_learners import policy_of

from plugrad import hookimpl
from plugrad_ppo.loss import ppo_loss

KIND = "in-place"


@bug(KIND, "ppo")
def advantages_centred(learner, module_id, config, batch, fwd_out):
    advantages = batch["advantages"]
    advantages -= learner.ops.mean(advantages)  # here
    return ppo_loss(learner, module_id, config, batch, fwd_out)


@bug(KIND, "dqn")
def rewards_scaled(learner, batch, fwd_out):
    ops, rewards = learner.ops, batch["rewards"]
    rewards /= 10.0  # here
    best = ops.max(fwd_out["qf_preds"], axis=-1)
    return ops.mean(ops.huber(best - rewards))


@bug(KIND)
def last_target_is_zero(learner, batch, fwd_out):
    ops = learner.ops
    targets = batch["rewards"] + 0.9 * ops.stop_gradient(fwd_out["vf_preds"])
    targets[-1] = 0.0  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - targets))


@bug(KIND, "bc")
def first_action_is_forbidden(learner, module_id, batch, fwd_out):
    policy = policy_of(
        learner, module_id, {"action_dist_inputs": learner.ops.clip(fwd_out["action_dist_inputs"], -5, 5)}
    )
    policy.logits[:, 0] -= 10.0  # here
    return -learner.ops.mean(policy.logp(batch["actions"]))


@bug(KIND)
def returns_filled_in_a_loop(learner, batch, fwd_out):
    ops = learner.ops
    rewards = batch["rewards"]
    returns, running = ops.zeros_like(rewards), 0.0
    for t in reversed(range(ops.shape(rewards)[0])):
        running = rewards[t] + 0.99 * running
        returns[t] = running  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - returns))


@bug(KIND)
def terminal_values_are_zeroed(learner, batch, fwd_out):
    ops = learner.ops
    next_values = ops.stop_gradient(fwd_out["vf_preds"]) * 1.0
    next_values[batch["terminateds"]] = 0.0  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - batch["rewards"] - 0.99 * next_values))


@bug(KIND, "td3")
def errors_clamped(learner, batch, fwd_out):
    ops = learner.ops
    errors = ops.stop_gradient(fwd_out["qf_preds"][0]) - batch["rewards"]
    errors.clamp_(-1.0, 1.0)  # here
    return ops.mean(ops.square(fwd_out["qf_preds"][0] - batch["rewards"] - errors))


@bug(KIND)
def half_of_the_gradient(learner, batch, fwd_out):
    ops = learner.ops
    mask = ops.ones_like(batch["rewards"])
    mask[::2] *= 0.5  # here
    return ops.mean(mask * ops.square(fwd_out["vf_preds"] - batch["value_targets"]))


@bug(KIND)
class ClipsGradientsInPlace:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients = yield
        for each in gradients.values():
            each *= 0.5  # here
        return gradients


@bug(KIND)
def worst_half(learner, batch, fwd_out):
    ops = learner.ops
    errors = ops.square(fwd_out["vf_preds"] - batch["value_targets"])
    weights = ops.stop_gradient(errors) + 0.0
    weights.sort()  # here
    return ops.mean(errors * weights)


@bug(KIND, "ppo")
def one_hot_by_hand(learner, batch, fwd_out):
    ops = learner.ops
    hot = ops.zeros(ops.shape(fwd_out["action_dist_inputs"]))
    hot[:, 1] = 1.0  # here
    return -ops.mean(ops.sum(hot * ops.log_softmax(fwd_out["action_dist_inputs"]), axis=-1))


@twin(KIND, "ppo")
def advantages_centred_in_a_new_tensor(learner, module_id, config, batch, fwd_out):
    advantages = batch["advantages"] - learner.ops.mean(batch["advantages"])
    batch = {**batch, "advantages": advantages}
    return ppo_loss(learner, module_id, config, batch, fwd_out)


@twin(KIND)
def returns_scanned(learner, batch, fwd_out):
    ops = learner.ops

    def step(running, reward):
        running = reward + 0.99 * running
        return running, running

    _, returns = ops.scan(step, ops.zeros(()), batch["rewards"], reverse=True)
    return ops.mean(ops.square(fwd_out["vf_preds"] - returns))


@twin(KIND)
def terms_added_up(learner, batch, fwd_out):
    ops = learner.ops
    loss = ops.mean(ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
    loss = loss + 0.01 * ops.mean(ops.square(fwd_out["action_dist_inputs"]))
    return loss


@twin(KIND)
class HalvesGradients:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients = yield
        return {ref: 0.5 * each for ref, each in gradients.items()}
