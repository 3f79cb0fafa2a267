"""Dtypes are mixed, and one framework promotes where another refuses; or float64 comes in from numpy."""

import numpy as np
from seeded import bug, twin
from small_learners import SmallLearner, policy_of

from plugrad import hookimpl
from plugrad_ppo.loss import ppo_loss

PROMOTION = "dtype promotion"
FLOAT64 = "float64 leak"


@bug(PROMOTION)
def goes_on_of_a_bool(learner, config, batch, fwd_out):
    goes_on = 1.0 - batch["terminateds"]  # here
    targets = batch["rewards"] + config.gamma * goes_on * batch["value_targets"]
    return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - targets))


@bug(PROMOTION, "dqn")
def rewards_of_the_last_steps(learner, batch, fwd_out):
    ops = learner.ops
    final = batch["rewards"] * batch["terminateds"]  # here
    return ops.mean(ops.square(ops.max(fwd_out["qf_preds"], axis=-1) - final))


@bug(PROMOTION)
def actions_from_minus_one(learner, batch, fwd_out):
    ops = learner.ops
    signs = 2.0 * batch["actions"] - 1.0  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - ops.cast(signs, "float32")))


@bug(PROMOTION, "bc")
def regression_to_an_index(learner, batch, fwd_out):
    ops = learner.ops
    error = fwd_out["action_dist_inputs"][:, 1] - batch["actions"]  # here
    return ops.mean(ops.square(error))


@bug(PROMOTION)
class ReportsItsAccuracy(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        ops = self.ops
        is_right = ops.argmax(fwd_out["action_dist_inputs"], axis=-1) == batch["actions"]
        self.register_metric(module_id, "accuracy", ops.mean(is_right))  # here
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


@bug(PROMOTION)
def number_of_ends(learner, batch, fwd_out):
    ops = learner.ops
    ends = ops.sum(batch["terminateds"])  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - batch["value_targets"])) / ops.cast(ends + 1, "float32")


@bug(PROMOTION)
def float_as_a_condition(learner, batch, fwd_out):
    ops = learner.ops
    ends = ops.cast(batch["terminateds"], "float32")
    values = ops.where(ends, ops.zeros_like(batch["rewards"]), fwd_out["vf_preds"])  # here
    return ops.mean(ops.square(values - batch["value_targets"]))


@bug(PROMOTION, "dqn")
def discount_to_the_power_of_an_int(learner, config, batch, fwd_out):
    ops = learner.ops
    discount = config.gamma ** batch["n_step"]  # here
    targets = batch["rewards"] + ops.cast(discount, "float32") * ops.stop_gradient(
        ops.max(fwd_out["qf_preds"], axis=-1)
    )
    return ops.mean(ops.square(fwd_out["qf_preds"][:, 0] - targets))


@bug(PROMOTION)
def bytes_of_a_frame(learner, batch, fwd_out):
    ops = learner.ops
    brightness = ops.mean(batch["frame"] / 255.0, axis=-1)  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - ops.cast(brightness, "float32")))


@bug(PROMOTION)
def relu_by_a_comparison(learner, batch, fwd_out):
    ops, error = learner.ops, fwd_out["vf_preds"] - batch["value_targets"]
    return ops.mean(error * (error > 0.0))  # here


@bug(PROMOTION)
def floats_beside_indices(learner, batch, fwd_out):
    ops = learner.ops
    best = ops.argmax(fwd_out["action_dist_inputs"], axis=-1)
    features = ops.stack([fwd_out["vf_preds"], best], axis=-1)  # here
    return ops.mean(ops.square(features))


@bug(FLOAT64)
def divided_by_a_root_of_numpy(learner, batch, fwd_out):
    ops = learner.ops
    error = (fwd_out["vf_preds"] - batch["value_targets"]) / np.sqrt(2.0)  # here
    return ops.mean(ops.square(error))


@bug(FLOAT64, "ppo")
def entropy_of_a_uniform_policy(learner, module_id, config, batch, fwd_out):
    ops = learner.ops
    missing = np.log(2) - ops.mean(policy_of(learner, module_id, fwd_out).entropy())  # here
    return ppo_loss(learner, module_id, config, batch, fwd_out) + 0.01 * missing


@bug(FLOAT64)
def weights_of_linspace(learner, batch, fwd_out):
    ops = learner.ops
    weights = np.linspace(0.5, 1.0, ops.shape(batch["rewards"])[0])
    return ops.mean(ops.square(fwd_out["vf_preds"] - batch["value_targets"]) * ops.asarray(weights))  # here


@bug(FLOAT64, "appo")
def discounts_of_arange(learner, config, batch, fwd_out):
    ops = learner.ops
    powers = config.gamma ** np.arange(ops.shape(batch["rewards"])[0])
    total = ops.sum(batch["rewards"] * ops.asarray(powers))  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - total))


@bug(FLOAT64)
def two_numbers_in_where(learner, batch, fwd_out):
    ops = learner.ops
    signs = ops.where(batch["advantages"] > 0.0, 1.0, -1.0)  # here
    return ops.mean(signs * fwd_out["vf_preds"])


@bug(FLOAT64)
def summed_in_float64(learner, batch, fwd_out):
    ops, error = learner.ops, fwd_out["vf_preds"] - batch["value_targets"]
    exact = ops.sum(ops.cast(ops.square(error), "float64"))
    return exact / 6.0 + ops.mean(ops.abs(error))  # here


@bug(FLOAT64, "td3")
def zeros_of_float64(learner, batch, fwd_out):
    ops = learner.ops
    floor = ops.zeros(ops.shape(batch["rewards"]), dtype="float64")
    return ops.mean(ops.square(fwd_out["qf_preds"][0] - ops.maximum(batch["rewards"], floor)))  # here


@bug(FLOAT64)
class ScalesByStatisticsOfNumpy:
    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        scale = np.mean([0.5, 1.5, 2.5])
        losses = yield
        return {module_id: loss * scale for module_id, loss in losses.items()}  # here


@twin(PROMOTION)
def goes_on_of_a_cast(learner, config, batch, fwd_out):
    ops = learner.ops
    goes_on = 1.0 - ops.cast(batch["terminateds"], "float32")
    targets = batch["rewards"] + config.gamma * goes_on * batch["value_targets"]
    return ops.mean(ops.square(fwd_out["vf_preds"] - targets))


@twin(PROMOTION)
class ReportsItsAccuracyAsAFloat(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        ops = self.ops
        best = ops.cast(ops.argmax(fwd_out["action_dist_inputs"], axis=-1), "int64")
        is_right = best == ops.cast(batch["actions"], "int64")
        self.register_metric(module_id, "accuracy", ops.mean(ops.cast(is_right, "float32")))
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


@twin(PROMOTION, "dqn")
def discount_to_the_power_of_a_float(learner, config, batch, fwd_out):
    ops = learner.ops
    discount = ops.power(config.gamma, ops.cast(batch["n_step"], "float32"))
    targets = batch["rewards"] + discount * ops.stop_gradient(ops.max(fwd_out["qf_preds"], axis=-1))
    return ops.mean(ops.square(fwd_out["qf_preds"][:, 0] - targets))


@twin(FLOAT64)
def weights_of_linspace_in_float32(learner, batch, fwd_out):
    ops = learner.ops
    weights = np.linspace(0.5, 1.0, ops.shape(batch["rewards"])[0], dtype=np.float32)
    return ops.mean(ops.square(fwd_out["vf_preds"] - batch["value_targets"]) * ops.asarray(weights))


@twin(FLOAT64)
def lists_of_numbers(learner, batch, fwd_out):
    ops = learner.ops
    error = fwd_out["action_dist_inputs"] - ops.asarray([0.5, -0.5])
    return ops.mean(ops.square(error / float(np.sqrt(2.0)))) + ops.mean(ops.where(error > 0.0, error, 0.0))
