"""Random numbers and the clock in a loss: a program draws, or looks, once."""

import random
import time

import numpy as np
from seeded import bug, twin
from small_learners import SmallLearner, policy_of

from plugrad import Learner, hookimpl
from plugrad_dqn.loss import dqn_loss
from plugrad_sac.sac_loss import NOISE

RANDOM = "random numbers in a loss"
TIME = "host time"


@bug(RANDOM, "td3", updates=2)
def noise_of_numpy(learner, batch, fwd_out):
    ops = learner.ops
    noise = np.random.normal(scale=0.2, size=ops.shape(batch["rewards"])).astype(np.float32)  # here
    targets = batch["rewards"] + ops.clip(ops.asarray(noise), -0.5, 0.5)  # here
    return ops.mean(ops.square(fwd_out["qf_preds"][0] - targets))


@bug(RANDOM, "dqn", updates=3)
def double_or_not(learner, module_id, config, batch, fwd_out):
    scale = 1.0 if random.random() < 0.5 else 0.5  # here
    return scale * dqn_loss(learner, module_id, config, batch, fwd_out)  # here


@bug(RANDOM, updates=2)
def dropout_of_a_stream(learner, batch, fwd_out):
    ops = learner.ops
    keep = learner.stream("dropout").uniform(size=ops.shape(batch["obs"])[0]) > 0.2  # here
    mask = ops.asarray(keep.astype(np.float32))  # here
    return ops.mean(mask * ops.square(fwd_out["vf_preds"] - batch["value_targets"]))


@bug(RANDOM, "bc", updates=2)
class SmoothsLabels(Learner):
    def build(self):
        super().build()
        self.rng = np.random.default_rng(0)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        smoothing = float(self.rng.uniform(0.0, 0.1))  # here
        logp = policy_of(self, module_id, fwd_out).logp(batch["actions"])
        return -(1.0 - smoothing) * self.ops.mean(logp)  # here


@bug(RANDOM, updates=2)
class NoisyGradients:
    @hookimpl(wrapper=True)
    def postprocess_gradients_for_module(self, learner, module_gradients_dict):
        gradients = yield
        return {ref: each * float(np.random.uniform(0.9, 1.1)) for ref, each in gradients.items()}  # here


@bug(RANDOM, "sac", updates=2)
def pairs_of_rows(learner, batch, fwd_out):
    ops = learner.ops
    order = np.random.permutation(ops.shape(batch["rewards"])[0])  # here
    values = fwd_out["qf_preds"][0]
    return ops.mean(ops.square(values - ops.take(values, ops.asarray(order))))  # here


@bug(TIME, updates=2)
class AnnealsByTheClock(SmallLearner):
    def build(self):
        super().build()
        self.begun = time.perf_counter()

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss / (1.0 + time.perf_counter() - self.begun)  # here


@bug(TIME, "ppo", updates=2)
class ReportsWhen:
    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        begun = time.monotonic()
        losses = yield
        learner.register_metric("default_policy", "seconds", time.monotonic() - begun)  # here
        return losses


@twin(RANDOM, updates=2)
class NoiseOfAColumn(Learner):
    def get_noise_columns(self, module_id, config=None):
        return {"noise": ()}

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        targets = batch["value_targets"] + 0.2 * batch["noise"]
        return self.ops.mean(self.ops.square(fwd_out["vf_preds"] - targets))


@twin(RANDOM, "sac", updates=2)
def noise_of_the_algorithm(learner, batch, fwd_out):
    ops = learner.ops
    targets = batch["rewards"] + 0.1 * ops.sum(batch[NOISE], axis=-1)
    return ops.mean(ops.square(fwd_out["qf_preds"][0] - targets))


@twin(TIME, updates=2)
class TimesItsUpdates:
    begun = 0.0

    @hookimpl
    def update_begun(self, learner):
        self.begun = time.perf_counter()

    @hookimpl
    def update_ended(self, results):
        self.seconds = time.perf_counter() - self.begun
