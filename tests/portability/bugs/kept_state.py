"""State is set while a loss is traced, or a tensor outlives the trace that made it."""

import functools

import numpy as np
from seeded import bug, twin
from small_learners import SmallLearner, policy_of

from plugrad import Learner, hookimpl
from plugrad_ppo import PPOLearner
from plugrad_ppo.loss import ppo_loss

STATE = "state while a loss is traced"
LEAK = "leaked tensor"
GLOBAL = "global variable"
STEPS = 0
BASELINE = None
SEEN = []


@bug(STATE)
class KeepsItsEntropy(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        self.entropy = self.ops.mean(policy_of(self, module_id, fwd_out).entropy())  # here
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss - 0.01 * self.entropy


@bug(STATE, "ppo")
def features_on_the_module(learner, module_id, config, batch, fwd_out):
    learner.module[module_id].last_values = fwd_out["vf_preds"]  # here
    return ppo_loss(learner, module_id, config, batch, fwd_out)


@bug(STATE, "dqn")
class CountsItsSteps(Learner):
    steps = 0

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        self.steps += 1  # here
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


@bug(STATE)
def counts_in_counters(learner, batch, fwd_out):
    learner.counters["minibatches"] = learner.counters.get("minibatches", 0) + 1  # here
    return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))


@bug(STATE)
class CachesItsAtoms(Learner):
    atoms = None

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        if self.atoms is None:
            self.atoms = self.ops.asarray(np.linspace(-1.0, 1.0, 5, dtype=np.float32))  # here
        return self.ops.mean(self.ops.square(self.ops.expand_dims(fwd_out["vf_preds"], 1) - self.atoms))


@bug(STATE, "bc")
class CountsCalls:
    calls = 0

    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        self.calls += 1  # here
        return (yield)


@bug(STATE)
class KeepsGradientNorms(SmallLearner):
    def postprocess_gradients(self, gradients_dict):
        self.norms = {ref: self.ops.norm(each) for ref, each in gradients_dict.items()}  # here
        return super().postprocess_gradients(gradients_dict)


class Pieces:
    """A connector with a number that a loss sets."""

    rows = 0

    def __call__(self, *, learner, batch, episodes):
        return batch


@bug(STATE, samples=True)
class TellsItsConnector(Learner):
    def build(self):
        super().build()
        self.pieces = Pieces()
        self.connectors.append(self.pieces)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        self.pieces.rows += self.ops.shape(fwd_out["vf_preds"])[0]  # here
        return self.ops.mean(self.ops.square(fwd_out["vf_preds"] - batch["rewards"]))


@bug(LEAK, "ppo", updates=2)
class ComparesWithThePolicyOfBefore(PPOLearner):
    def build(self):
        super().build()
        self.before = {}

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        ops, logits = self.ops, ops_stopped(self, fwd_out)
        before = self.before.get(module_id, logits)
        self.before[module_id] = logits  # here
        return ops.mean(ops.square(fwd_out["action_dist_inputs"] - before))  # here


def ops_stopped(learner, fwd_out):
    return learner.ops.stop_gradient(fwd_out["action_dist_inputs"])


@bug(LEAK)
class AveragesItsLosses(SmallLearner):
    def build(self):
        super().build()
        self.losses = []

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        self.losses.append(loss)  # here
        return loss

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        self.register_metric("default_policy", "mean_of_losses", float(sum(self.losses)))  # here


@bug(LEAK)
class ReportsLater:
    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        self.losses = yield  # here
        return self.losses

    @hookimpl
    def update_ended(self, results):
        self.text = ", ".join(f"{m}: {float(loss):.3f}" for m, loss in self.losses.items())  # here


@bug(LEAK, updates=2)
class TargetsOfTheUpdateBefore(Learner):
    def build(self):
        super().build()
        self.kept = [None]

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        ops, values = self.ops, fwd_out["vf_preds"]
        old = values if self.kept[0] is None else self.kept[0]
        self.kept[0] = ops.stop_gradient(values)  # here
        return ops.mean(ops.square(values - batch["value_targets"])) + ops.mean(ops.abs(values - old))  # here


@functools.cache
def atoms(ops):
    return ops.asarray(np.linspace(-1.0, 1.0, 3, dtype=np.float32))


@bug(LEAK, updates=2)
def cached_atoms(learner, batch, fwd_out):
    ops = learner.ops
    support = atoms(ops)  # here
    return ops.mean(ops.square(ops.expand_dims(fwd_out["vf_preds"], 1) - support))  # here


@bug(GLOBAL, updates=2)
def global_counter(learner, batch, fwd_out):
    global STEPS
    STEPS += 1  # here
    loss = learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
    return loss * 0.9**STEPS  # here


@bug(GLOBAL, updates=2)
def global_baseline(learner, batch, fwd_out):
    global BASELINE
    ops = learner.ops
    mean = ops.mean(batch["rewards"])
    BASELINE = mean if BASELINE is None else 0.9 * BASELINE + 0.1 * mean  # here
    return ops.mean(ops.square(fwd_out["vf_preds"] - (batch["rewards"] - BASELINE)))


@bug(GLOBAL, "bc", updates=2)
def global_list(learner, module_id, batch, fwd_out):
    loss = -learner.ops.mean(policy_of(learner, module_id, fwd_out).logp(batch["actions"]))
    SEEN.append(learner.ops.stop_gradient(loss))  # here
    return loss / (1.0 + learner.ops.abs(SEEN[0]))  # here


@twin(STATE)
class ReportsItsEntropy(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        entropy = self.ops.mean(policy_of(self, module_id, fwd_out).entropy())
        self.register_metric(module_id, "entropy", entropy)
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss - 0.01 * entropy

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        self.last_entropy = self.metrics.results["default_policy"]["entropy"]


@twin(STATE, updates=2)
class KeepsAnArrayOfAtoms(Learner):
    def build(self):
        super().build()
        self.atoms = np.linspace(-1.0, 1.0, 5, dtype=np.float32)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        ops = self.ops
        return ops.mean(ops.square(ops.expand_dims(fwd_out["vf_preds"], 1) - ops.asarray(self.atoms)))


@twin(LEAK, updates=2)
class MovesAnAverageOutsideTheLoss(SmallLearner):
    average = 0.0

    @property
    def coefficient(self):
        return 0.5

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        self.average = 0.9 * self.average + 0.1 * self.metrics.results["default_policy"]["total_loss"]

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return self.coefficient * loss


@twin(LEAK, updates=2)
class KeepsTensorsForOneStep:
    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        terms = []
        for columns in fwd_out.values():
            terms.append(learner.ops.mean(learner.ops.square(columns["action_dist_inputs"])))
        losses = yield
        return {module_id: loss + 0.01 * sum(terms) for module_id, loss in losses.items()}


@twin(GLOBAL)
class CountsOutsideTheProgram:
    @hookimpl
    def update_ended(self, results):
        global STEPS
        STEPS += 1
