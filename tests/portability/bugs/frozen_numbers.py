"""A Python number, or an array, that changes between updates: a program keeps the one that it was traced with."""

import itertools

import numpy as np
from seeded import bug, twin
from small_learners import SmallLearner, policy_of

from plugrad import Learner, hookimpl
from plugrad.schedules import Schedule
from plugrad_dqn.loss import dqn_loss
from plugrad_ppo import PPOLearner
from plugrad_ppo.loss import ppo_loss

KIND = "frozen number"
NOW = "num_env_steps_sampled_lifetime"


@bug(KIND, "ppo", updates=2)
class AnnealsItsOwnBonus(PPOLearner):
    bonus = 0.1

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss - self.bonus * self.ops.mean(policy_of(self, module_id, fwd_out).entropy())  # here

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        self.bonus *= 0.9


@bug(KIND, updates=2)
class WarmsUpByACounter(SmallLearner):
    def before_gradient_based_update(self, *, timesteps):
        self.counters["updates"] = self.counters.get("updates", 0) + 1
        super().before_gradient_based_update(timesteps=timesteps)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss * min(1.0, 0.1 * self.counters["updates"])  # here


@bug(KIND, "dqn", updates=2)
class AnnealsByProgress(Learner):
    def before_gradient_based_update(self, *, timesteps):
        self.progress = timesteps[NOW] / 1000

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        weights = self.ops.power(batch["weights"], 0.4 + 0.6 * self.progress)  # here
        return dqn_loss(self, module_id, config, {**batch, "weights": weights}, fwd_out)


@bug(KIND, "dqn", updates=2, training={"epsilon": [[0, 1.0], [200, 0.1]]})
def reads_epsilon_as_a_number(learner, module_id, config, batch, fwd_out):
    epsilon = float(learner.coefficients[module_id]["epsilon"].numpy())  # here
    loss = dqn_loss(learner, module_id, config, batch, fwd_out)
    return loss + epsilon * learner.ops.mean(learner.ops.square(fwd_out["qf_preds"]))  # here


@bug(KIND, updates=2)
class ItsOwnSchedule(SmallLearner):
    beta = Schedule.of([[0, 0.4], [1000, 1.0]])
    now = 0

    def before_gradient_based_update(self, *, timesteps):
        self.now = timesteps[NOW]

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        values = self.ops.square(fwd_out["vf_preds"] - batch["value_targets"])
        return self.ops.mean(values) * self.beta.at(self.now)  # here


@bug(KIND, "ppo", updates=2)
class CyclesTemperatures(PPOLearner):
    temperatures = itertools.cycle([1.0, 2.0])

    def before_gradient_based_update(self, *, timesteps):
        self.temperature = next(self.temperatures)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        logits = fwd_out["action_dist_inputs"] / self.temperature  # here
        fwd_out = {**fwd_out, "action_dist_inputs": logits}
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


@bug(KIND, updates=3)
class WeighsByTheLastLoss:
    weight = 1.0

    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        losses = yield
        return {module_id: self.weight * loss for module_id, loss in losses.items()}  # here

    @hookimpl
    def update_ended(self, results):
        self.weight = 1.0 / (1.0 + abs(results["default_policy"]["total_loss"]))


@bug(KIND, "ppo", updates=2)
class WarmsUpGradients:
    updates = 0

    @hookimpl
    def update_begun(self, learner):
        self.updates += 1

    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients = yield
        return {ref: each * min(1.0, self.updates / 10) for ref, each in gradients.items()}  # here


@bug(KIND, updates=2)
def age_of_the_weights(learner, batch, fwd_out):
    loss = learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
    return loss * 0.99**learner.weights_version  # here


@bug(KIND, "bc", updates=2)
class BalancesActions(Learner):
    counts = np.ones(2, np.float32)

    def update(self, batch, **kwargs):
        self.counts = self.counts + np.bincount(batch["actions"], minlength=2).astype(np.float32)
        return super().update(batch, **kwargs)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        ops = self.ops
        weights = ops.asarray(self.counts.sum() / self.counts)  # here
        logps = ops.log_softmax(fwd_out["action_dist_inputs"]) * weights  # here
        return -ops.mean(ops.sum(ops.one_hot(batch["actions"], 2) * logps, axis=-1))


class RewardScale:
    """A connector that knows how far rewards spread."""

    std = 1.0

    def __call__(self, *, learner, batch, episodes):
        self.std = float(np.concatenate([each.rewards for each in episodes]).std())
        return batch


@bug(KIND, updates=2, samples=True)
class ScalesByItsConnector(Learner):
    def build(self):
        super().build()
        self.scale = RewardScale()
        self.connectors.append(self.scale)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        rewards = batch["rewards"] / (self.scale.std + 1e-6)  # here
        return self.ops.mean(self.ops.square(fwd_out["vf_preds"] - rewards))


@bug(KIND, "ppo", updates=2, training={"lr": [[0, 1e-3], [200, 1e-4]]})
class DecaysWithTheLearningRate(PPOLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        lr = self.get_optimizer(module_id=module_id).lr.numpy()  # here
        return loss + float(lr) * self.ops.mean(self.ops.square(fwd_out["vf_preds"]))  # here


@twin(KIND, "ppo", updates=2, training={"entropy_coeff": [[0, 0.1], [200, 0.0]]})
def scheduled_by_the_config(learner, module_id, config, batch, fwd_out):
    entropy = learner.ops.mean(policy_of(learner, module_id, fwd_out).entropy())
    return ppo_loss(learner, module_id, config, batch, fwd_out) - config.entropy_coeff * entropy


@twin(KIND, "ppo", updates=3, training={"use_kl_loss": True})
class AdaptsAVariable(PPOLearner):
    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        coefficient = self.coefficients["default_policy"]["kl_coeff"]
        coefficient.assign(1.1 * float(coefficient.numpy()))


@twin(KIND, updates=2, samples=True)
class ScalesInItsConnector(Learner):
    def build(self):
        super().build()
        self.connectors.append(self.scale)

    @staticmethod
    def scale(*, learner, batch, episodes):
        for columns in batch.values():
            columns["scaled"] = columns["rewards"] / (columns["rewards"].std() + 1e-6)
        return batch

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        return self.ops.mean(self.ops.square(fwd_out["vf_preds"] - batch["scaled"]))


@twin(KIND, updates=3)
class CountsUpdatesForItself(SmallLearner):
    updates = 0

    def before_gradient_based_update(self, *, timesteps):
        self.updates += 1
        self.counters["updates"] = self.updates

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        self.register_metric("default_policy", "updates", self.updates)


@twin(KIND, updates=2)
class CountsRows(SmallLearner):
    def update(self, batch, **kwargs):
        rows = 6 - self.counters.get("updates", 0)
        self.counters["updates"] = 1
        return super().update({name: column[:rows] for name, column in batch.items()}, **kwargs)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        errors = self.ops.square(fwd_out["vf_preds"] - batch["value_targets"])
        return self.ops.sum(errors) / self.ops.shape(errors)[0]
