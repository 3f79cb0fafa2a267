"""A tiny actor and critic with noise, a target network and a delayed policy, and the same loop by hand in numpy."""

from dataclasses import dataclass

import numpy as np
from learning import OBSERVATIONS, TWO_ACTIONS

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig, Columns, Learner
from plugrad.losses import mean_over_rows
from plugrad.networks import Network, Parameter, orthogonal
from plugrad.optimizers import SGD, Adam
from plugrad.rng_streams import stream

GAMMA, QF_RATE, PI_RATE = 0.9, 0.05, 0.01


@dataclass(frozen=True, kw_only=True)
class DelayedConfig(AlgorithmConfig):
    """With the settings of target networks that off-policy algorithms share."""

    target_update: str = "step"
    target_network_update_freq: int = 2
    tau: float = 0.25
    policy_delay: int = 2


class Lines(Network):
    """`obs @ pi` as the inputs of actions, `obs @ qf` as the value."""

    parameters = (Parameter("pi", (3, 2), orthogonal, 0.5), Parameter("qf", (3, 1), orthogonal, 0.5))

    def forward(self, ops, weights, batch, *, value):
        obs = batch[Columns.OBS]
        return {
            Columns.ACTION_DIST_INPUTS: ops.matmul(obs, weights["pi"]),
            "qf_preds": ops.matmul(obs, weights["qf"])[..., 0],
        }


class DelayedLearner(Learner):
    """The critic follows its target network; the actor follows the critic, later."""

    def _build_network(self, *, module_id, config, module_spec):
        return Lines()

    def get_target_parameters(self, module_id, config=None):
        return ["qf"]

    def get_noise_columns(self, module_id, config=None):
        return {"actor_noise": (2,), "critic_noise": ()}

    def configure_optimizers_for_module(self, module_id, config=None):
        config = config or self.config
        pi, qf = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id, optimizer_name="qf", optimizer=SGD(), params=[qf], lr_or_lr_schedule=QF_RATE
        )
        self.register_optimizer(
            module_id=module_id,
            optimizer_name="pi",
            optimizer=Adam(),
            params=[pi],
            lr_or_lr_schedule=PI_RATE,
            every=config.policy_delay,
        )

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        ops, values = self.ops, fwd_out["qf_preds"]
        later = self.targets[module_id].forward({Columns.OBS: batch[Columns.NEXT_OBS]})["qf_preds"]
        critic = ops.square(values - batch[Columns.REWARDS] - GAMMA * later - batch["critic_noise"])
        wanted = ops.stop_gradient(values)[..., None] + batch["actor_noise"]
        actor = ops.sum(ops.square(fwd_out[Columns.ACTION_DIST_INPUTS] - wanted), -1)
        spoiled = 0.0 * ops.log(batch["positive"])
        return mean_over_rows(ops, critic + actor + spoiled, batch)


def delayed_config(backend="numpy", *, compile="none", seed=1, learner_class=DelayedLearner, **training):
    config = DelayedConfig().framework(backend, compile=compile).debugging(seed=seed)
    config = config.environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
    settings = {"minibatch_size": 8, "shuffle_batch_per_epoch": False, **training}
    return config.training(**settings).learners(learner_class=learner_class)


def delayed_learner(backend="numpy", **settings):
    return delayed_config(backend, **settings).build_learner()


def delayed_batch(rows=16, seed=0, spoiled=()):
    """Rows; those in `spoiled` have a loss that is not finite."""
    rng = np.random.default_rng(seed)
    positive = np.ones(rows, np.float32)
    positive[list(spoiled)] = 0.0
    return {
        Columns.OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.NEXT_OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.REWARDS: rng.normal(size=rows).astype(np.float32),
        "positive": positive,
    }


class ByHand:
    """The same training written out, in float64: unshuffled minibatches of 8 rows, one after the other."""

    def __init__(self, learner):
        self.config = learner.config
        self.weights = {
            name: each.astype(float) for name, each in learner.get_weights()[DEFAULT_MODULE_ID].items()
        }
        self.target = self.weights["qf"].copy()
        self.m, self.v = np.zeros((3, 2)), np.zeros((3, 2))
        self.steps, self.num_pi_steps, self.num_moves = 0, 0, 0
        self.rng = stream(learner.seed, DEFAULT_MODULE_ID, "noise")

    def update(self, batch, num_minibatches):
        """All gradient steps of one update."""
        rows = 8 * self.config.accumulate
        for n in range(num_minibatches // self.config.accumulate):
            where = np.arange(n * rows, (n + 1) * rows) % len(batch[Columns.OBS])
            # The minibatches of a step are interleaved: so is their noise.
            where = where.reshape(self.config.accumulate, 8).T.ravel()
            drawn = self.rng.standard_normal(3 * rows, np.float32).astype(float)
            noise = drawn[: 2 * rows].reshape(rows, 2), drawn[2 * rows :]
            self.step({name: values[where].astype(float) for name, values in batch.items()}, *noise)

    def step(self, rows, actor_noise, critic_noise):
        if not rows["positive"].all():
            return
        self.steps += 1
        obs, number = rows[Columns.OBS], len(rows[Columns.OBS])
        values, later = obs @ self.weights["qf"], rows[Columns.NEXT_OBS] @ self.target
        error = values[:, 0] - rows[Columns.REWARDS] - GAMMA * later[:, 0] - critic_noise
        distance = obs @ self.weights["pi"] - values - actor_noise
        self.weights["qf"] = self.weights["qf"] - QF_RATE * 2.0 / number * obs.T @ error[:, None]
        if self.steps % self.config.policy_delay == 0:
            self.step_policy(2.0 / number * obs.T @ distance)
        if self.steps % max(1, self.config.target_network_update_freq) == 0:
            self.num_moves += 1
            self.target = self.config.tau * self.weights["qf"] + (1.0 - self.config.tau) * self.target

    def step_policy(self, slope):
        """Adam: arXiv:1412.6980, algorithm 1."""
        self.num_pi_steps += 1
        self.m = 0.9 * self.m + 0.1 * slope
        self.v = 0.999 * self.v + 0.001 * slope**2
        m, v = self.m / (1.0 - 0.9**self.num_pi_steps), self.v / (1.0 - 0.999**self.num_pi_steps)
        self.weights["pi"] = self.weights["pi"] - PI_RATE * m / (np.sqrt(v) + 1e-8)

    def assert_equals(self, learner, tolerance=1e-5):
        found = learner.get_weights()[DEFAULT_MODULE_ID]
        for name, expected in self.weights.items():
            np.testing.assert_allclose(found[name], expected, rtol=0.0, atol=tolerance, err_msg=name)
        target = learner.targets[DEFAULT_MODULE_ID].get_state()["qf"]
        np.testing.assert_allclose(target, self.target, rtol=0.0, atol=tolerance)
