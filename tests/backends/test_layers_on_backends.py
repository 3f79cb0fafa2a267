"""Recurrent layers, layer norms and first weights on each backend: the frameworks' own numbers, and equal updates."""

import importlib
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import largest_difference, ppo_batch, ppo_config, quick_mode

import plugrad
from plugrad import DEFAULT_MODULE_ID, Columns, Learner
from plugrad.networks.layers import layer_norm
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

P = DEFAULT_MODULE_ID
CELLS = 5
BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def layers_of(backend: str) -> Any:
    return importlib.import_module(f"layers_of_{backend}")


def scattered(learner: Learner, scale: float) -> dict[str, np.ndarray]:
    """Sets weights that leave no bias at 0."""
    rng, weights = np.random.default_rng(0), learner.get_weights()[P]
    weights = {
        name: rng.normal(scale=scale, size=each.shape).astype(np.float32) for name, each in weights.items()
    }
    learner.set_state({"rl_module": {P: weights}})
    return weights


def forward(learner: Learner, batch: dict[str, Any]) -> dict[str, Any]:
    tensors = learner._convert_batch_type(batch)
    return learner._convert_to_numpy(learner.module[P].forward_train(tensors))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_recurrent_layer_is_that_of_the_framework(backend, kind):
    model = {f"use_{kind}": True, f"{kind}_cell_size": CELLS, "fcnet_hiddens": [], "vf_share_layers": True}
    learner = ppo_config(backend).rl_module(model_config=model).build_learner()
    weights, rng = scattered(learner, 0.5), np.random.default_rng(1)
    x = rng.normal(size=(4, 6, 3)).astype(np.float32)
    state = {
        name: rng.normal(size=(4, CELLS)).astype(np.float32)
        for name in ("h", "c")[: 2 if kind == "lstm" else 1]
    }
    found = forward(learner, {Columns.OBS: x, Columns.STATE_IN: state})
    prefix = f"encoder.{kind}."
    own = {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)}
    outputs, last = layers_of(backend).recurrent(kind, own, x, list(state.values()))
    for each, expected in zip(found[Columns.STATE_OUT].values(), last, strict=True):
        np.testing.assert_allclose(each, expected, rtol=0, atol=1e-6)
    inputs = outputs @ weights["pi.out.weight"] + weights["pi.out.bias"]
    np.testing.assert_allclose(found[Columns.ACTION_DIST_INPUTS], inputs, rtol=0, atol=2e-6)


def test_a_layer_norm_is_that_of_the_framework(backend):
    learner, rng = ppo_config(backend).build_learner(), np.random.default_rng(0)
    ops = learner.ops
    x = rng.normal(2.0, 3.0, (7, 9)).astype(np.float32)
    weights = {
        "m.weight": rng.normal(size=9).astype(np.float32),
        "m.bias": rng.normal(size=9).astype(np.float32),
    }
    tensors = {name: ops.asarray(each) for name, each in weights.items()}
    found = learner._convert_to_numpy(layer_norm(ops, tensors, "m", ops.asarray(x)))
    np.testing.assert_allclose(found, layers_of(backend).layer_norm(*weights.values(), x), rtol=0, atol=1e-6)


def ppo(backend: str) -> tuple[Any, dict[str, Any]]:
    return ppo_config(backend, optimizer={"type": "sgd"}, lr=0.1), ppo_batch(8)


def dqn(backend: str) -> tuple[Any, dict[str, Any]]:
    config = DQNConfig().environment(observation_space=BOX, action_space=gym.spaces.Discrete(2))
    return _off_policy(config, backend), transitions(np.arange(8) % 2)


def sac(backend: str) -> tuple[Any, dict[str, Any]]:
    config = SACConfig().environment(observation_space=BOX, action_space=BOX)
    return _off_policy(config, backend), transitions(
        np.random.default_rng(1).uniform(-1, 1, (8, 2)).astype(np.float32)
    )


def _off_policy(config: Any, backend: str) -> Any:
    settings = {"lr": 0.1, "minibatch_size": None, "num_epochs": 1, "optimizer": {"type": "sgd"}}
    return config.framework(backend).training(**settings).debugging(seed=1)


def transitions(actions: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    obs, new_obs = rng.uniform(-1.0, 1.0, (2, 8, 2)).astype(np.float32)
    rewards, terminateds = rng.normal(size=8).astype(np.float32), np.arange(8) % 3 == 0
    columns = {
        Columns.OBS: obs,
        Columns.NEXT_OBS: new_obs,
        Columns.ACTIONS: actions,
        Columns.REWARDS: rewards,
    }
    return {**columns, Columns.TERMINATEDS: terminateds}


@pytest.mark.parametrize("algorithm", [ppo, dqn, sac])
def test_an_update_with_layer_norms_is_that_of_finite_differences(backend, algorithm):
    weights = []
    for each in ("numpy", backend):
        config, batch = algorithm(each)
        model = {"fcnet_hiddens": [4, 3], "layer_norm": True}
        learner = config.framework(each, compile="none").rl_module(model_config=model).build_learner()
        start = scattered(learner, 0.3)
        learner.update(batch)
        weights.append(learner.get_weights()[P])
    assert any(name.endswith(".1.norm.bias") for name in start)
    for name, expected in weights[0].items():
        assert ".norm." not in name or np.abs(expected - start[name]).max() > 1e-6, name
        np.testing.assert_allclose(weights[1][name], expected, rtol=0, atol=1e-5, err_msg=name)


def everything_new(backend: str) -> PPOConfig:
    model = {"fcnet_hiddens": [4], "layer_norm": True, "ortho_init": False, "log_std_init": -0.5,
             "use_gru": True, "gru_cell_size": 3, "max_seq_len": 5}  # fmt: skip
    config = (
        PPOConfig()
        .environment("Pendulum-v1")
        .framework(backend, compile=quick_mode(backend))
        .debugging(seed=0)
    )
    config = config.env_runners(num_envs_per_env_runner=2)
    return config.training(train_batch_size=20, minibatch_size=None, num_epochs=2).rl_module(
        model_config=model
    )


@needs.backends("torch", "tf2", "jax")
def test_all_backends_train_to_the_same_weights_and_a_checkpoint_crosses(tmp_path):
    algorithms = [everything_new(backend).build_algo() for backend in ("torch", "tf2", "jax")]
    for algorithm in algorithms:
        for _ in range(2):
            algorithm.train()
    one, *others = (each.learner_group.get_weights() for each in algorithms)
    for other in others:
        assert largest_difference(one, other) < 1e-5
    algorithms[0].save_to_path(tmp_path)
    crossed = plugrad.algorithm.Algorithm.from_checkpoint(tmp_path, backend="jax")
    assert largest_difference(crossed.learner_group.get_weights(), one) == 0.0
    crossed.train()
    algorithms[0].train()
    weights = algorithms[0].learner_group.get_weights()
    assert largest_difference(crossed.learner_group.get_weights(), weights) < 1e-5
    for each in (*algorithms, crossed):
        each.stop()
