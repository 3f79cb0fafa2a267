"""Methods and attributes that one framework's tensors have: neutral are operators, slices and `learner.ops`."""

from seeded import bug, twin
from small_learners import SmallLearner, policy_of

from plugrad import hookimpl
from plugrad_ppo.loss import ppo_loss

KIND = "method of a tensor"


@bug(KIND)
def mean_of_itself(learner, batch, fwd_out):
    error = fwd_out["vf_preds"] - batch["value_targets"]
    return (error * error).mean()  # here


@bug(KIND, "bc")
def sum_of_itself(learner, module_id, batch, fwd_out):
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    return -logp.sum() / 6.0  # here


@bug(KIND, "dqn")
def detached(learner, batch, fwd_out):
    ops = learner.ops
    best = ops.max(fwd_out["qf_preds"], axis=-1).detach()  # here
    return ops.mean(ops.square(fwd_out["qf_preds"][:, 0] - batch["rewards"] - 0.9 * best))


@bug(KIND, "ppo")
def exp_of_itself(learner, module_id, batch, fwd_out):
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    ratio = (logp - batch["action_logp"]).exp()  # here
    return -learner.ops.mean(ratio * batch["advantages"])


@bug(KIND)
def unsqueezed(learner, batch, fwd_out):
    ops = learner.ops
    column = fwd_out["vf_preds"].unsqueeze(-1)  # here
    return ops.mean(ops.square(column - batch["target"]))


@bug(KIND)
class ReportsAnItem(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        self.register_metric(module_id, "loss_as_a_number", loss.item())  # here
        return loss


@bug(KIND)
def numpy_of_a_tensor(learner, batch, fwd_out):
    ops = learner.ops
    rewards = batch["rewards"].numpy()  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - ops.asarray(rewards)))


@bug(KIND)
def cast_by_a_method(learner, config, batch, fwd_out):
    ops = learner.ops
    goes_on = 1.0 - batch["terminateds"].astype("float32")  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - batch["rewards"] - config.gamma * goes_on))


@bug(KIND, "dqn")
def float_by_a_method(learner, batch, fwd_out):
    ops = learner.ops
    goes_on = 1.0 - batch["terminateds"].float()  # here
    return ops.mean(ops.square(fwd_out["qf_preds"][:, 0] - goes_on * batch["rewards"]))


@bug(KIND)
def turned_round(learner, batch, fwd_out):
    logits = fwd_out["action_dist_inputs"].T  # here
    return learner.ops.mean(learner.ops.square(logits[0] - logits[1]))


@bug(KIND)
def reshaped_by_a_method(learner, batch, fwd_out):
    ops = learner.ops
    values = fwd_out["vf_preds"].reshape(-1, 1)  # here
    return ops.mean(ops.square(values - batch["target"]))


@bug(KIND, "td3")
def clamped(learner, batch, fwd_out):
    ops = learner.ops
    values = fwd_out["qf_preds"][0].clamp(-1.0, 1.0)  # here
    return ops.mean(ops.square(values - batch["rewards"]))


@bug(KIND, "ppo")
class NormOfItself:
    @hookimpl(wrapper=True)
    def postprocess_gradients(self, learner, gradients_dict):
        gradients = yield
        return {ref: each / (1.0 + each.norm()) for ref, each in gradients.items()}  # here


@bug(KIND)
def at_of_jax(learner, batch, fwd_out):
    ops = learner.ops
    rewards = batch["rewards"].at[0].set(0.0)  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - rewards))


@bug(KIND, "ppo")
def gradients_wanted(learner, module_id, config, batch, fwd_out):
    loss = ppo_loss(learner, module_id, config, batch, fwd_out)
    return loss if loss.requires_grad else 0.0 * loss  # here


@twin(KIND, "dqn")
def stopped_by_ops(learner, batch, fwd_out):
    ops = learner.ops
    best = ops.stop_gradient(ops.max(fwd_out["qf_preds"], axis=-1))
    goes_on = 1.0 - ops.cast(batch["terminateds"], "float32")
    return ops.mean(ops.square(fwd_out["qf_preds"][:, 0] - batch["rewards"] - 0.9 * goes_on * best))


@twin(KIND)
def operators_and_slices(learner, batch, fwd_out):
    ops, logits = learner.ops, fwd_out["action_dist_inputs"]
    difference = (logits[:, 0] - logits[..., 1]) ** 2 / 2.0
    later = -difference[1:] + difference[:-1]
    return ops.mean(difference) + ops.mean(ops.where(later >= 0.0, later, 0.0 * later))
