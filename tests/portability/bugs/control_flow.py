"""Python decides by a value: a compiled program has none while Python runs."""

import logging

from seeded import bug, twin
from small_learners import SmallLearner, policy_of

from plugrad import hookimpl
from plugrad_ppo import PPOLearner
from plugrad_ppo.loss import ppo_loss

KIND = "control flow"
log = logging.getLogger(__name__)


@bug(KIND, "ppo")
def penalty_if_the_policy_moved_far(learner, module_id, config, batch, fwd_out):
    loss = ppo_loss(learner, module_id, config, batch, fwd_out)
    kl = learner.ops.mean(policy_of(learner, module_id, batch).kl(policy_of(learner, module_id, fwd_out)))
    if kl > 2.0 * config.kl_target:  # here
        loss = loss + 10.0 * kl
    return loss


@bug(KIND, "ppo")
def spread_or_one(learner, module_id, config, batch, fwd_out):
    ops, advantages = learner.ops, batch["advantages"]
    std = ops.std(advantages)
    std = 1.0 if std < 1e-6 else std  # here
    batch = {**batch, "advantages": (advantages - ops.mean(advantages)) / std}
    return ppo_loss(learner, module_id, config, batch, fwd_out)


@bug(KIND)
def error_halved_until_it_is_small(learner, batch, fwd_out):
    ops = learner.ops
    error = fwd_out["vf_preds"] - batch["value_targets"]
    while ops.max(ops.abs(error)) > 0.5:  # here
        error = 0.5 * error
    return ops.mean(ops.square(error))


@bug(KIND, "appo")
def ratio_is_asserted(learner, module_id, batch, fwd_out):
    ops = learner.ops
    ratio = ops.exp(policy_of(learner, module_id, fwd_out).logp(batch["actions"]) - batch["action_logp"])
    assert ops.min(ratio) > 0.0, "a ratio of probabilities is positive"  # here
    return -ops.mean(ratio * batch["advantages"])


@bug(KIND)
class LeavesOutWhatIsNotFinite(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        if not self.ops.isfinite(loss):  # here
            return self.ops.zeros_like(loss)
        return loss


@bug(KIND)
def larger_of_two_losses(learner, batch, fwd_out):
    ops, values = learner.ops, fwd_out["vf_preds"]
    clipped = ops.mean(ops.square(ops.clip(values, -1.0, 1.0) - batch["value_targets"]))
    return max(clipped, ops.mean(ops.square(values - batch["value_targets"])))  # here


@bug(KIND, "ppo")
class StopsEarly(PPOLearner):
    target_kl = 0.02

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        logp = policy_of(self, module_id, fwd_out).logp(batch["actions"])
        moved = self.ops.mean(batch["action_logp"] - logp)
        moved_far = moved > self.target_kl and not config.use_kl_loss  # here
        return 0.0 * loss if moved_far else loss


@bug(KIND, "ppo")
def trusted_within_bounds(learner, module_id, config, batch, fwd_out):
    ops = learner.ops
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    ratio = ops.mean(ops.exp(logp - batch["action_logp"]))
    weight = 1.0 if 0.8 < ratio < 1.2 else 0.1  # here
    return weight * ppo_loss(learner, module_id, config, batch, fwd_out)


@bug(KIND)
def median_of_three(learner, batch, fwd_out):
    ops, error = learner.ops, fwd_out["vf_preds"] - batch["value_targets"]
    losses = [ops.mean(ops.abs(error)), ops.mean(ops.square(error)), ops.mean(ops.huber(error))]
    return sorted(losses)[1]  # here


@bug(KIND, "ppo")
def coefficient_as_a_float(learner, module_id, config, batch, fwd_out):
    ops = learner.ops
    entropy = ops.mean(policy_of(learner, module_id, fwd_out).entropy())
    weight = 0.1 / max(float(entropy), 0.1)  # here
    return ppo_loss(learner, module_id, config, batch, fwd_out) - weight * entropy


@bug(KIND, "dqn")
def as_many_rows_as_go_on(learner, batch, fwd_out):
    ops = learner.ops
    number = int(ops.sum(1.0 - ops.cast(batch["terminateds"], "float32")))  # here
    values = ops.max(fwd_out["qf_preds"], axis=-1)
    return ops.mean(ops.square(values - batch["rewards"])[:number])


@bug(KIND)
def as_many_passes_as_steps(learner, batch, fwd_out):
    ops, targets = learner.ops, batch["value_targets"]
    for _ in range(ops.max(batch["steps_left"])):  # here
        targets = 0.9 * targets + 0.1 * batch["rewards"]
    return ops.mean(ops.square(fwd_out["vf_preds"] - targets))


@bug(KIND, "bc")
def says_what_it_computes(learner, module_id, batch, fwd_out):
    loss = -learner.ops.mean(policy_of(learner, module_id, fwd_out).logp(batch["actions"]))
    log.info(f"cloning: {loss:.3f}")  # here
    return loss


@bug(KIND)
class ScalesLargeGradients:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients, ops = (yield), learner.ops
        scaled = {}
        for ref, gradient in gradients.items():
            norm = ops.norm(gradient)
            scaled[ref] = gradient / norm if norm > 1e-3 else gradient  # here
        return scaled


@bug(KIND, "bc")
class StopsBelowALoss:
    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        losses = yield
        return {m: loss if loss > 0.0 else 0.0 * loss for m, loss in losses.items()}  # here


@twin(KIND, "ppo")
def penalty_where_the_policy_moved_far(learner, module_id, config, batch, fwd_out):
    ops = learner.ops
    loss = ppo_loss(learner, module_id, config, batch, fwd_out)
    kl = ops.mean(policy_of(learner, module_id, batch).kl(policy_of(learner, module_id, fwd_out)))
    return loss + ops.where(kl > 2.0 * config.kl_target, 10.0 * kl, 0.0)


@twin(KIND, "ppo")
def branches_on_settings_and_shapes(learner, module_id, config, batch, fwd_out):
    ops, loss = learner.ops, ppo_loss(learner, module_id, config, batch, fwd_out)
    if config.use_kl_loss or "weights" not in batch:
        return loss
    if len(ops.shape(fwd_out["vf_preds"])) == 1 and ops.shape(fwd_out["vf_preds"])[0] > 2:
        loss = loss + 0.1 * ops.mean(batch["weights"] * fwd_out["vf_preds"])
    return loss


@twin(KIND)
def larger_of_two(learner, batch, fwd_out):
    ops, values = learner.ops, fwd_out["vf_preds"]
    clipped = ops.mean(ops.square(ops.clip(values, -1.0, 1.0) - batch["value_targets"]))
    return ops.maximum(clipped, ops.mean(ops.square(values - batch["value_targets"])))


@twin(KIND)
class DividesByTheNorm:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients, ops = (yield), learner.ops
        return {ref: each / (ops.norm(each) + 1e-3) for ref, each in gradients.items()}
