"""What RLlib's own tests of Learner and local LearnerGroup check, in our words, on every backend.

Gradients of ones, the three clips and Adam's arithmetic stand in test_learner_on_backends; remote groups in
tests/group.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from learning import PlainConfig, digest, ppo_batch, ppo_config, quick, quick_mode, with_modules
from safetensors.numpy import load_file

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Columns, Learner, LearnerGroup, RLModuleSpec
from plugrad.losses import mean_over_rows
from plugrad_ppo import PPOConfig, PPOLearner

P = DEFAULT_MODULE_ID
LN_2 = float(np.log(2.0))
DEMONSTRATIONS = Path(__file__).parents[1] / "data" / "cartpole_demonstrations.safetensors"
"""512 rows of CartPole-v1, `obs` [512, 4] and `actions` [512], of a policy that PPO had trained to a return of 400."""


# --- behaviour cloning, three times -----------------------------------------------------------------------------


class NeutralBC(Learner):
    """Written once for all backends."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        policy = self.module[module_id].get_train_action_dist_cls()
        logp = policy.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS]).logp(batch[Columns.ACTIONS])
        return -mean_over_rows(self.ops, logp, batch)


def torch_bc():
    import torch

    from plugrad_torch import TorchLearner

    class TorchBC(TorchLearner):
        """In plain torch."""

        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            policy = torch.distributions.Categorical(logits=fwd_out[Columns.ACTION_DIST_INPUTS])
            return -policy.log_prob(batch[Columns.ACTIONS]).mean()

    return TorchBC


def tf2_bc():
    import tensorflow as tf

    from plugrad_tf2 import Tf2Learner

    class Tf2BC(Tf2Learner):
        """In plain TensorFlow."""

        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=batch[Columns.ACTIONS], logits=fwd_out[Columns.ACTION_DIST_INPUTS]
            )
            return tf.reduce_mean(losses)

    return Tf2BC


def jax_bc():
    import jax

    from plugrad_jax import JaxLearner

    class JaxBC(JaxLearner):
        """In plain JAX."""

        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            logp = jax.nn.log_softmax(fwd_out[Columns.ACTION_DIST_INPUTS])
            taken = jax.nn.one_hot(batch[Columns.ACTIONS], logp.shape[-1])
            return -(logp * taken).sum(-1).mean()

    return JaxBC


OWN = {"torch": torch_bc, "tf2": tf2_bc, "jax": jax_bc}


def bc_learner(backend, learner_class):
    config = (
        PlainConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .training(lr=1e-3)
        .learners(learner_class=learner_class)
        .rl_module(model_config={"fcnet_hiddens": [32]})
        .debugging(seed=0)
    )
    return config.build_learner(env=gym.make("CartPole-v1"))


@pytest.mark.parametrize("written", ["neutral", "plain"])
def test_cloning_demonstrations_lowers_the_loss_from_ln_2(backend, written):
    learner = bc_learner(backend, NeutralBC if written == "neutral" else OWN[backend]())
    batch, losses = load_file(DEMONSTRATIONS), []
    for number in range(1, 1001):
        results = learner.update(batch)
        losses.append(results[P]["total_loss"])
        assert results[P]["weights_seq_no"] == number
        assert results[P]["num_module_steps_trained"] == 512
        assert results[P]["num_module_steps_trained_lifetime"] == 512 * number
        assert results[ALL_MODULES]["num_env_steps_trained_lifetime"] == 512 * number
        if np.mean(losses[-10:]) < 0.57:
            break
    assert losses[0] == pytest.approx(LN_2, abs=0.01)
    assert np.mean(losses[-10:]) < 0.57


# --- modules, states, groups ------------------------------------------------------------------------------------

SPEC = RLModuleSpec(model_config={"fcnet_hiddens": [4]})


def test_what_is_saved_comes_back_whatever_was_added_or_removed(backend, tmp_path):
    learner = with_modules(quick(ppo_config(backend)), "p0", "p1").build_learner()
    changes = [
        lambda: None,
        lambda: learner.add_module(module_id="p2", module_spec=SPEC),
        lambda: learner.remove_module("p0"),
    ]
    for number, change in enumerate(changes):
        change()
        learner.update({module_id: ppo_batch() for module_id in learner.module})
        path = learner.save_to_path(tmp_path / str(number))
        other = PPOLearner.from_checkpoint(path)
        assert digest(other.get_state()) == digest(learner.get_state())
        assert other.get_optimizers_for_module("p1")[0][0] == "default_optimizer"
        for each in (learner, other):
            each.update({module_id: ppo_batch(seed=1) for module_id in each.module})
        assert digest(other.get_state()) == digest(learner.get_state())


def test_a_group_is_built_from_a_config_with_its_own_or_the_default_class(backend):
    config = quick(PPOConfig()).framework(backend, compile=quick_mode(backend)).environment("CartPole-v1")
    groups = [
        config.build_learner_group(),
        config.learners(learner_class=PPOLearner).build_learner_group(env=gym.make("CartPole-v1")),
        LearnerGroup(config=config),
    ]
    for group in groups:
        with group:
            assert group.is_local
            assert not group.is_remote
            assert len(group) == 1


def test_a_learner_and_a_local_group_are_the_same_before_and_after_a_module_is_added(backend):
    config = with_modules(quick(ppo_config(backend)), "p0")
    learner, group = config.build_learner(), config.build_learner_group()
    for ids in (["p0"], ["p0", "p1"]):
        if "p1" in ids:
            learner.add_module(module_id="p1", module_spec=SPEC)
            group.add_module(module_id="p1", module_spec=SPEC)
        batch = {module_id: ppo_batch() for module_id in ids}
        alone, (together,) = learner.update(batch), group.update(batch)
        for module_id in ids:
            assert together[module_id] == alone[module_id]
        assert digest(group.get_state()["learner"]) == digest(learner.get_state())


def test_the_keys_of_the_results_follow_the_modules(backend):
    group = with_modules(quick(ppo_config(backend)), "p0").build_learner_group()

    def keys():
        modules = group.foreach_learner(lambda learner: list(learner.module))[0]
        return set(group.update({each: ppo_batch() for each in modules})[0])

    assert keys() == {"p0", ALL_MODULES}
    group.add_module(module_id="p1", module_spec=SPEC)
    assert keys() == {"p0", "p1", ALL_MODULES}
    group.remove_module("p1")
    assert keys() == {"p0", ALL_MODULES}


def test_updates_after_a_restore_are_the_updates_of_a_straight_run(backend, tmp_path):
    group = quick(ppo_config(backend)).build_learner_group()
    first = group.save_to_path(tmp_path / "first")
    group.update(ppo_batch(seed=1))
    second = group.save_to_path(tmp_path / "second")

    def after(path, *seeds):
        group.restore_from_path(path)
        for seed in seeds:
            group.update(ppo_batch(seed=seed))
        return digest(group.get_state())

    assert after(second, 2) == after(first, 1, 2)


def test_one_module_or_all_are_restored_by_their_path(backend, tmp_path):
    config = with_modules(quick(ppo_config(backend)), "p0", "p1")
    saved, other = config.build_learner_group(), config.debugging(seed=2).build_learner_group()
    path = saved.save_to_path(tmp_path / "c")
    before = other.get_weights()
    other.restore_from_path(path, component="rl_module/p0")
    assert digest(other.get_weights(["p0"])) == digest(saved.get_weights(["p0"]))
    assert digest(other.get_weights(["p1"])) == digest({"p1": before["p1"]})
    other.restore_from_path(path, component="rl_module")
    assert digest(other.get_weights()) == digest(saved.get_weights())


def test_async_updates_give_their_results_later_and_train(backend):
    group = bc_group(backend)
    batch, losses = load_file(DEMONSTRATIONS), []
    for _ in range(200):
        for results in group.update(batch, async_update=True):
            losses.append(results[P]["total_loss"])
    assert losses[-1] < losses[0] - 0.05
    assert len(losses) >= 190


def bc_group(backend):
    config = bc_learner(backend, NeutralBC).config
    return LearnerGroup(config=quick(config))


def test_the_kl_coefficient_of_each_module_follows_its_own_divergence(backend):
    config = with_modules(quick(ppo_config(backend, use_kl_loss=True, lr=0.05)), "near", "far")
    learner = config.rl_module(
        algorithm_config_overrides_per_module={"near": {"kl_target": 100.0}, "far": {"kl_target": 1e-9}}
    ).build_learner()
    results = learner.update({"near": ppo_batch(), "far": ppo_batch()})
    assert results["near"]["curr_kl_coeff"] == pytest.approx(0.1)
    assert results["far"]["curr_kl_coeff"] == pytest.approx(0.3)
