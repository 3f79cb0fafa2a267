"""`framework(precision="bf16")`: passes of networks in bfloat16, and all that is kept in float32."""

from pathlib import Path
from typing import Any

import actor_critics
import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import OBSERVATIONS, largest_difference, ppo_batch, ppo_config, quick, weights
from statistics_models import STATISTICS, normed, statistics
from test_failed_exchanges import Echo

import plugrad
from plugrad import DEFAULT_MODULE_ID, Learner
from plugrad.errors import ConfigError, NonFiniteError
from plugrad.learner.state.state import digest
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOLearner

P = DEFAULT_MODULE_ID
MODES = ("none", "forward_train", "complete_update", "auto")


def in_bf16(config: Any) -> Any:
    return config.framework(config.backend, precision="bf16")


def learner_of(config: Any, module: Any = None) -> Learner:
    learner = PPOLearner(config=config, module=module)
    learner.build()
    return learner


def dqn_config(backend: str, **training: Any) -> Any:
    config = DQNConfig().environment(observation_space=OBSERVATIONS, action_space=gym.spaces.Discrete(3))
    config = config.framework(backend).debugging(seed=1).rl_module(model_config={"fcnet_hiddens": [16]})
    return config.training(minibatch_size=None, shuffle_batch_per_epoch=False, **training)


def case(name: str, backend: str) -> tuple[Any, Any]:
    """A config with networks of 16 units, and a function that makes the n-th batch."""
    if name == "ppo":
        config = ppo_config(backend, hiddens=(16,), lr=1e-3)
        return config, lambda n: ppo_batch(256, seed=n)
    if name == "dqn":
        return dqn_config(backend, lr=1e-3), lambda n: actor_critics.transitions("sac discrete", 256, seed=n)
    config = actor_critics.tiny(name, backend, hiddens=(16,), lr=1e-3)
    return config, lambda n: actor_critics.transitions(name, 256, seed=n)


@pytest.mark.cross_product
@pytest.mark.parametrize("name", ["ppo", "dqn", "sac", "td3"])
def test_for_100_steps_each_optimizers_gradient_norm_is_within_2_percent_of_float32(backend, name):
    """At the same weights: those to which the steps in bfloat16 lead."""
    config, batch = case(name, backend)
    config = quick(config)
    lowered, exact = in_bf16(config).build_learner(), config.build_learner()
    worst, differ = {}, 0
    for n in range(100):
        exact.set_state(lowered.get_state())
        found, expected = (each.update(batch(n))[P] for each in (lowered, exact))
        for key in (key for key in expected if key.endswith("_global_norm")):
            error = abs(found[key] - expected[key]) / max(expected[key], 1e-8)
            worst[key] = max(worst.get(key, 0.0), error)
            differ += found[key] != expected[key]
    assert worst
    assert max(worst.values()) <= 2e-2, worst
    assert differ >= 50, "the passes were computed in float32"


@pytest.mark.cross_product
@pytest.mark.parametrize("mode", MODES)
def test_in_every_mode_an_update_is_that_of_eager_steps(backend, mode):
    """Within the rounding of one bfloat16 pass: compilers may keep more bits between operations."""
    config = ppo_config(backend, lr=1e-2, minibatch_size=8)
    exact = quick(config)
    other = in_bf16(config.framework(backend, compile=mode))
    eager, other, exact = (learner_of(each) for each in (in_bf16(exact), other, exact))
    for learner in (eager, other, exact):
        learner.update(ppo_batch(16))
    assert largest_difference(other.get_weights(), eager.get_weights()) < 1e-2
    assert not np.array_equal(weights(other), weights(exact))
    if mode == "complete_update":
        assert other.update_mode.startswith("complete_update")


def test_checkpoints_are_float32_and_open_without_precision(backend, tmp_path: Path):
    config = quick(ppo_config(backend, lr=1e-2))
    lowered, exact = learner_of(in_bf16(config)), learner_of(config)
    lowered.update(ppo_batch(16))
    state = lowered.get_state()
    dtypes = {each.dtype for each in plugrad.results.flatten(state["rl_module"]).values()}
    slots = [each.dtype for each in plugrad.results.flatten(state["optimizer"]).values() if np.ndim(each)]
    assert dtypes == {*slots} == {np.dtype(np.float32)}
    lowered.save_to_path(tmp_path / "saved")
    exact.restore_from_path(tmp_path / "saved")
    assert digest(exact) == digest(lowered)
    again = type(lowered).from_checkpoint(tmp_path / "saved")
    assert again.config.precision == "bf16"
    assert digest(again) == digest(lowered)
    np.testing.assert_array_equal(
        exact.compute_actions(ppo_batch(4)["obs"], explore=False)["action_dist_inputs"],
        again.compute_actions(ppo_batch(4)["obs"], explore=False)["action_dist_inputs"],
    )


def test_a_failed_update_is_undone(backend):
    learner = learner_of(in_bf16(quick(ppo_config(backend, lr=1e-2))))
    learner.update(ppo_batch(16))
    before = digest(learner)
    with pytest.raises(NonFiniteError):
        learner.update({**ppo_batch(16), "action_logp": np.full(16, -1e30, np.float32)})
    assert digest(learner) == before
    learner.update(ppo_batch(16))


def test_statistics_of_a_users_model_stay_float32_and_are_close(backend):
    """BatchNorm and Dropout in the framework's own layers."""
    found = []
    config = quick(ppo_config(backend, lr=0.1, optimizer={"type": "sgd"}))
    for each in (in_bf16(config), config):
        learner = learner_of(each, normed(backend, dropout=0.0))
        for n in range(3):
            learner.update(ppo_batch(32, seed=n))
        found.append(learner)
    lowered, exact = found
    for name, values in statistics(exact).items():
        assert statistics(lowered)[name].dtype == values.dtype
        np.testing.assert_allclose(statistics(lowered)[name], values, rtol=2e-2, atol=2e-2, err_msg=name)
    assert set(STATISTICS[backend]) & set(statistics(lowered))
    assert not np.array_equal(weights(lowered), weights(exact))
    np.testing.assert_allclose(weights(lowered), weights(exact), atol=2e-2)


def test_a_group_sums_gradients_in_float32(backend):
    exchanged = {}

    class Noting(Echo):
        def sum(self, array: np.ndarray) -> np.ndarray:
            exchanged[array.size] = array.dtype
            return super().sum(array)

    learner = learner_of(in_bf16(quick(ppo_config(backend, lr=1e-2))))
    learner.collective = Noting()
    learner.update(ppo_batch(16))
    assert exchanged[weights(learner).size] == np.float32


def test_a_recurrent_network_is_trained(backend):
    """Its state is float32 outside of the pass."""
    config = ppo_config(backend).rl_module(
        model_config={"fcnet_hiddens": [4], "use_gru": True, "gru_cell_size": 4}
    )
    rows = {key: values.reshape(4, 4, *values.shape[1:]) for key, values in ppo_batch(16).items()}
    rows |= {
        "state_in": {name: np.zeros((4, 4), np.float32) for name in ("pi_h", "vf_h")},
        "loss_mask": np.ones((4, 4), bool),
    }
    found = []
    for each in (in_bf16(quick(config)), quick(config)):
        learner = learner_of(each)
        learner.update(rows)
        found.append(weights(learner))
    assert not np.array_equal(*found)
    np.testing.assert_allclose(*found, atol=1e-2)


def test_float16_is_refused_with_the_reason(backend):
    with pytest.raises(ConfigError, match=r'become 0 unless losses are scaled.*precision="bf16"'):
        ppo_config(backend).framework(backend, precision="float16")


def test_variables_that_no_layer_casts_are_refused_when_the_learner_is_built():
    needs.backend("tf2")
    import tensorflow as tf

    class Plain(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.ones([3, 2]))

        def __call__(self, obs):
            return obs @ self.kernel

    with pytest.raises(ConfigError, match=r"'model.kernel' is a tf.Variable.*Keras layer"):
        learner_of(in_bf16(ppo_config("tf2")), Plain())
    learner_of(ppo_config("tf2"), Plain())
