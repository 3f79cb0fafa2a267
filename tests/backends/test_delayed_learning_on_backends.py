"""Noise, target networks that move with each gradient step and delayed optimizers: numpy's numbers in every mode."""

import needs
import numpy as np
import pytest
from delayed_learning import (
    PI_RATE,
    ByHand,
    DelayedLearner,
    Lines,
    delayed_batch,
    delayed_config,
    delayed_learner,
)
from learning import digest, largest_difference
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, Columns
from plugrad.learner.state.state import digest as digest_of
from plugrad.networks import Parameter, orthogonal

P = DEFAULT_MODULE_ID
MODES = ["none", "forward_train", "complete_update"]
CASES = {
    "each second step": {},
    "each step": {"policy_delay": 1, "target_network_update_freq": 0},
    "third and fifth": {"policy_delay": 3, "target_network_update_freq": 5, "tau": 1.0},
    "accumulated": {"accumulate": 2},
    "skipped": {"nonfinite": "skip"},
}


@pytest.mark.cross_product
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_every_mode_computes_what_is_written_out_by_hand(backend, mode, case):
    learner = delayed_learner(backend, compile=mode, **CASES[case])
    by_hand = ByHand(learner)
    for n, number in enumerate((6, 1, 5)):
        # Row 11 is spoiled: `skip` leaves each minibatch out that has it.
        batch = delayed_batch(16 + 5 * (n % 2), seed=n, spoiled=[11] if case == "skipped" else ())
        learner.update(batch, num_total_minibatches=number)
        by_hand.update(batch, number + number % by_hand.config.accumulate)
        by_hand.assert_equals(learner)
    assert learner.update_mode.startswith(mode), learner.update_mode
    assert by_hand.num_moves > 1
    assert by_hand.num_pi_steps > 1


@pytest.mark.parametrize("accumulate", [1, 2])
def test_learners_of_a_group_are_one(accumulate):
    """In threads, which TensorFlow may not have enough of; tests/group has remote learners on every backend."""
    needs.backend("torch")
    config = delayed_config(
        "torch", compile="auto", num_epochs=3, shuffle_batch_per_epoch=True, accumulate=accumulate
    )
    learners, one = [config.build_learner() for _ in range(2)], config.build_learner()
    for n in range(3):
        batch = delayed_batch(21, seed=n)
        if n == 2:
            batch[Columns.LOSS_MASK] = np.arange(21) % 4 > 0
        one.update(batch)
        errors = on_all(learners, lambda learner, batch=batch: learner.update(batch))
        assert not any(isinstance(each, Exception) for each in errors), errors
    assert len({digest_of(each) for each in learners}) == 1
    parts = ["rl_module", "targets", "optimizer"]
    assert largest_difference(learners[0].get_state(parts), one.get_state(parts)) < 1e-6


def test_a_checkpoint_in_the_middle_of_a_delay(backend, tmp_path):
    learner = delayed_learner(backend, compile="auto", policy_delay=3)
    learner.update(delayed_batch(), num_total_minibatches=4)
    path = learner.save_to_path(tmp_path / "saves")
    again = delayed_learner(backend, compile="auto", policy_delay=3, seed=2)
    reference = delayed_learner("numpy", policy_delay=3, seed=3)
    for each in (again, reference):
        each.restore_from_path(path)
    assert digest(again.get_state()) == digest(learner.get_state())
    for each in (learner, again, reference):
        each.update(delayed_batch(seed=1), num_total_minibatches=5)
    assert digest(again.get_state()) == digest(learner.get_state())
    parts = ["rl_module", "targets", "optimizer"]
    assert largest_difference(learner.get_state(parts), reference.get_state(parts)) < 1e-5


class Wrapping(DelayedLearner):
    """Moves its target networks where it applies gradients, as the program runs it."""

    def apply_gradients(self, gradients_dict):
        super().apply_gradients(gradients_dict)
        for target in self.targets.values():
            target.update(tau=0.25)


@pytest.mark.cross_product
@pytest.mark.parametrize("mode", MODES[::2])
def test_a_target_network_moved_by_apply_gradients_moves_with_each_step(backend, mode):
    settings = {"compile": mode, "target_network_update_freq": 0}
    one = delayed_learner(backend, **settings)
    other = delayed_learner(backend, **settings, target_update="by apply_gradients", learner_class=Wrapping)
    for each in (one, other):
        each.update(delayed_batch(), num_total_minibatches=5)
    parts = ["rl_module", "targets", "optimizer"]
    assert largest_difference(one.get_state(parts), other.get_state(parts)) < 1e-6


class FrameworksOwn(DelayedLearner):
    """The policy is stepped by an optimizer of the framework."""

    def register_optimizer(self, *, optimizer, params, lr_or_lr_schedule, every=1, **names):
        if every > 1 and self.config.backend == "torch":
            import torch

            optimizer = torch.optim.Adam(params, PI_RATE)
        elif every > 1 and self.config.backend == "jax":
            import optax

            optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=PI_RATE)
        elif every > 1:
            import tensorflow as tf

            # Keras' Adam has its epsilon elsewhere: here it does not show.
            optimizer = tf.keras.optimizers.Adam(PI_RATE, epsilon=1e-8)
        super().register_optimizer(
            optimizer=optimizer, params=params, lr_or_lr_schedule=lr_or_lr_schedule, every=every, **names
        )


@pytest.mark.parametrize("nonfinite", ["raise", "skip"])
def test_an_optimizer_of_the_frameworks_own_is_delayed_too(backend, nonfinite):
    settings = {"learner_class": FrameworksOwn, "nonfinite": nonfinite, "policy_delay": 3}
    learner, again = (delayed_learner(backend, compile="auto", **settings) for _ in range(2))
    by_hand = ByHand(learner)
    for n, number in enumerate((4, 7)):
        batch = delayed_batch(spoiled=[11] if nonfinite == "skip" else (), seed=n)
        learner.update(batch, num_total_minibatches=number)
        by_hand.update(batch, number)
        by_hand.assert_equals(learner)
        again.set_state(learner.get_state())
    again.update(batch, num_total_minibatches=2)
    by_hand.update(batch, 2)
    by_hand.assert_equals(again)


class ThroughTheCritic(Lines):
    """The value of an action is its product with `qf`; of the policy's actions, with `qf` as a constant."""

    parameters = (Parameter("pi", (3, 1), orthogonal, 0.5), Parameter("qf", (3, 1), orthogonal, 0.5))

    def forward(self, ops, weights, batch, *, value):
        obs = batch[Columns.OBS]
        if "policy_actions" not in batch:
            return {Columns.ACTION_DIST_INPUTS: ops.matmul(obs, weights["pi"])}
        slope = ops.matmul(obs, ops.stop_gradient(weights["qf"]))
        return {"qf_preds": (batch["policy_actions"] * slope)[:, 0]}


class ActorOnly(DelayedLearner):
    """Its loss is the critic's value of the policy's actions, and nothing else."""

    def _build_network(self, *, module_id, config, module_spec):
        return ThroughTheCritic()

    def get_noise_columns(self, module_id, config=None):
        return {}

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        chosen = {Columns.OBS: batch[Columns.OBS], "policy_actions": fwd_out[Columns.ACTION_DIST_INPUTS]}
        return -self.ops.mean(self.module[module_id].forward_train(chosen)["qf_preds"])


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_an_actor_is_trained_through_a_critic_that_stays_as_it_is(backend, mode):
    learner = delayed_learner(backend, compile=mode, learner_class=ActorOnly, policy_delay=1)
    before, batch = learner.get_weights()[P], delayed_batch(8)
    results = learner.update(batch)[P]
    after, obs = learner.get_weights()[P], batch[Columns.OBS]
    slope = -(obs * (obs @ before["qf"])).mean(0)[:, None]
    assert results["gradients_pi_global_norm"] == pytest.approx(np.linalg.norm(slope), rel=1e-5)
    assert results["gradients_qf_global_norm"] == 0.0
    np.testing.assert_array_equal(after["qf"], before["qf"])
    # The first step of Adam goes against the sign of the gradient.
    np.testing.assert_allclose(after["pi"], before["pi"] - PI_RATE * np.sign(slope), atol=1e-5)


class Failing(DelayedLearner):
    """Raises after the gradient steps if it is told to."""

    fails = False

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        if self.fails:
            raise RuntimeError("after the steps")


def test_a_failed_update_takes_steps_noise_and_counts_back(backend):
    learner = delayed_learner(backend, compile="auto", learner_class=Failing, policy_delay=3)
    learner.update(delayed_batch(), num_total_minibatches=4)
    before, learner.fails = digest(learner.get_state()), True
    with pytest.raises(RuntimeError, match="after the steps"):
        learner.update(delayed_batch(seed=1), num_total_minibatches=4)
    assert digest(learner.get_state()) == before


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_sequences_have_noise_whatever_fills_their_minibatches_up(backend, mode):
    """Three sequences to a minibatch, which programs of one size fill up to four; one has hidden steps."""
    batch = {name: values.reshape(6, 4, *values.shape[1:]) for name, values in delayed_batch(24).items()}
    batch[Columns.LOSS_MASK] = np.arange(24).reshape(6, 4) != 11
    learner, reference = (
        delayed_learner(name, compile=each, minibatch_size=12)
        for name, each in ((backend, mode), ("numpy", "none"))
    )
    for each in (learner, reference):
        each.update(batch, num_total_minibatches=5)
    parts = ["rl_module", "targets", "optimizer"]
    assert largest_difference(learner.get_state(parts), reference.get_state(parts)) < 1e-5
