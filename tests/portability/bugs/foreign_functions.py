"""A function that is not of `learner.ops` gets a tensor: numpy's, Python's, or one framework's own."""

import math

import numpy as np
from seeded import bug, twin
from small_learners import SmallLearner, policy_of

from plugrad import hookimpl
from plugrad_ppo import PPOLearner
from plugrad_ppo.loss import ppo_loss

KIND = "foreign function"


@bug(KIND, "ppo")
def ratio_by_numpy(learner, module_id, batch, fwd_out):
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    ratio = np.exp(logp - batch["action_logp"])  # here
    return -learner.ops.mean(ratio * batch["advantages"])


@bug(KIND, "dqn")
def errors_clipped_by_numpy(learner, batch, fwd_out):
    ops = learner.ops
    errors = np.clip(fwd_out["qf_preds"][:, 0] - batch["rewards"], -1.0, 1.0)  # here
    return ops.mean(ops.square(errors))


@bug(KIND)
def chosen_by_numpy(learner, batch, fwd_out):
    rewards = np.where(batch["rewards"] > 0.0, 1.0, 0.0)  # here
    return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - rewards))


@bug(KIND)
def mean_by_numpy(learner, batch, fwd_out):
    error = fwd_out["vf_preds"] - batch["value_targets"]
    return np.mean(error * error)  # here


@bug(KIND, "sac")
class TemperatureByMath(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = self.ops.mean(self.ops.square(fwd_out["qf_preds"][0] - batch["rewards"]))
        alpha = math.exp(self.ops.stop_gradient(self.ops.mean(fwd_out["log_alpha"])))  # here
        return alpha * loss


@bug(KIND, "bc")
def array_of_a_tensor(learner, module_id, batch, fwd_out):
    ops = learner.ops
    share = np.asarray(batch["actions"]).mean()  # here
    return -float(share) * ops.mean(policy_of(learner, module_id, fwd_out).logp(batch["actions"]))


@bug(KIND)
class NormByNumpy:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients = yield
        norms = {ref: np.linalg.norm(each) for ref, each in gradients.items()}  # here
        return {ref: each / (1.0 + norms[ref]) for ref, each in gradients.items()}


@bug(KIND, "dqn")
def quantiles_on_the_left(learner, batch, fwd_out):
    ops = learner.ops
    quantiles = np.array([0.25, 0.75], np.float32)
    errors = quantiles - fwd_out["qf_preds"]  # here
    return ops.mean(ops.huber(errors))


@bug(KIND)
def joined_by_numpy(learner, batch, fwd_out):
    ops = learner.ops
    values = np.stack([fwd_out["vf_preds"], batch["rewards"]], axis=-1)  # here
    return ops.mean(ops.square(values))


@bug(KIND, "ppo")
class StandardisesByNumpy(PPOLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        advantages = batch["advantages"]
        std = np.std(advantages) + 1e-8  # here
        batch = {**batch, "advantages": advantages / std}
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


@bug(KIND)
def square_root_by_math(learner, batch, fwd_out):
    ops = learner.ops
    mean = ops.mean(ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
    return mean / math.sqrt(1.0 + ops.var(batch["value_targets"]))  # here


@bug(KIND, "appo")
def ufunc_method(learner, batch, fwd_out):
    ops = learner.ops
    returns = np.add.accumulate(batch["rewards"])  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - returns))


@bug(KIND, needs="torch")
def loss_of_torch(learner, batch, fwd_out):
    import torch.nn.functional

    return torch.nn.functional.mse_loss(fwd_out["vf_preds"], batch["value_targets"])  # here


@bug(KIND, needs="tf2")
def loss_of_tensorflow(learner, batch, fwd_out):
    import tensorflow as tf

    return tf.reduce_mean((fwd_out["vf_preds"] - batch["value_targets"]) ** 2)  # here


@bug(KIND, needs="jax")
def loss_of_jax(learner, batch, fwd_out):
    import jax.numpy as jnp

    return jnp.mean(jnp.square(fwd_out["vf_preds"] - batch["value_targets"]))  # here


@twin(KIND, "ppo")
def ratio_by_ops(learner, module_id, batch, fwd_out):
    ops = learner.ops
    logp = policy_of(learner, module_id, fwd_out).logp(batch["actions"])
    return -ops.mean(ops.exp(logp - batch["action_logp"]) * batch["advantages"])


@twin(KIND, "ppo")
def numbers_by_math(learner, module_id, config, batch, fwd_out):
    ops = learner.ops
    most = math.log(learner.module[module_id].action_space.n)
    entropy = ops.mean(policy_of(learner, module_id, fwd_out).entropy())
    return ppo_loss(learner, module_id, config, batch, fwd_out) + 0.01 * (most - entropy)


@twin(KIND, "dqn")
def quantiles_as_a_tensor(learner, batch, fwd_out):
    ops = learner.ops
    quantiles = ops.asarray(np.array([0.25, 0.75], np.float32))
    return ops.mean(ops.huber(quantiles - fwd_out["qf_preds"]))
