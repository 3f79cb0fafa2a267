"""The first weights of built-in networks by `ortho_init` and `log_std_init`, and layer norms in twin critics."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from learning import ppo_config

from plugrad import Columns, RLModuleSpec
from plugrad import numpy_ops as ops
from plugrad.model_config import MODEL_CONFIG
from plugrad.networks import ActorCritic
from plugrad_dqn.network import QNetwork
from plugrad_offline.iql.network import IQLNetwork
from plugrad_ppo import PPOLearner
from plugrad_sac.td3_networks import DeterministicNetwork
from plugrad_sac.twin_critics import TwinCritics

WIDE, BOX = Box(-1.0, 1.0, (300,), np.float32), Box(-1.0, 1.0, (2,), np.float32)
IMAGE = Box(0, 255, (20, 20, 3), np.uint8)


def spec(observation: Box = WIDE, action: Any = BOX, **model: Any) -> RLModuleSpec:
    return RLModuleSpec(observation_space=observation, action_space=action, model_config=model)


def drawn(network: Any) -> dict[str, np.ndarray]:
    return network.initial_weights(np.random.default_rng(0))


NETWORKS = {
    "ppo": lambda **model: ActorCritic(spec(**model)),
    "ppo with images": lambda **model: ActorCritic(spec(IMAGE, **model)),
    "dqn": lambda **model: QNetwork(spec(action=Discrete(2), **model), dueling=True),
    "td3": lambda **model: DeterministicNetwork(spec(**model), exploration_noise=0.1),
    "iql": lambda **model: IQLNetwork(spec(**model)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_without_ortho_init_layers_begin_as_those_of_torch(name):
    weights = drawn(NETWORKS[name](ortho_init=False, fcnet_hiddens=[200]))
    for layer in [each.removesuffix(".weight") for each in weights if each.endswith(".weight")]:
        weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
        copies = layer.startswith("qf.")
        bound = 1.0 / np.sqrt(
            np.prod(weight.shape[copies:-1])
        )  # of uniform numbers, with a variance of bound**2 / 3
        for array in (weight, bias):
            assert np.abs(array).max() <= bound
            assert array.any()
        if weight.size > 1000:
            np.testing.assert_allclose(weight.std(), bound / np.sqrt(3.0), rtol=0.05)
            assert np.abs(weight).max() > 0.98 * bound


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_weights_are_uniform_too_and_their_biases_stay(kind):
    model = {f"use_{kind}": True, f"{kind}_cell_size": 64, "fcnet_hiddens": [8]}
    weights, usual = (drawn(ActorCritic(spec(ortho_init=each, **model))) for each in (False, True))
    for name in ("input_weight", "recurrent_weight"):
        array = weights[f"pi.{kind}.{name}"]
        assert np.abs(array).max() <= 1 / 8
        np.testing.assert_allclose(array.std(), 1 / 8 / np.sqrt(3.0), rtol=0.05)
    np.testing.assert_array_equal(weights[f"pi.{kind}.bias"], usual[f"pi.{kind}.bias"])


@pytest.mark.parametrize("name", ["ppo", "iql"])
def test_the_log_of_the_standard_deviation_begins_where_log_std_init_says(name):
    np.testing.assert_array_equal(drawn(NETWORKS[name]())["pi.log_std"], [0.0, 0.0])
    np.testing.assert_array_equal(
        drawn(NETWORKS[name](log_std_init=-2))["pi.log_std"], np.float32([-2.0, -2.0])
    )


def test_a_layer_norm_stands_between_each_hidden_layer_and_its_activation():
    network = ActorCritic(spec(BOX, fcnet_hiddens=[4, 3], layer_norm=True))
    rng = np.random.default_rng(0)
    weights = {each.name: rng.normal(size=each.shape) for each in network.parameters}
    obs = rng.normal(size=(5, 2)).astype(np.float32)
    x = obs
    for n in range(2):
        x = np.tanh(normed(x @ weights[f"pi.{n}.weight"] + weights[f"pi.{n}.bias"], weights, f"pi.{n}.norm"))
    expected = x @ weights["pi.out.weight"] + weights["pi.out.bias"]
    found = network.forward(ops, weights, {Columns.OBS: obs}, value=False)[Columns.ACTION_DIST_INPUTS]
    np.testing.assert_allclose(found[:, :2], expected, rtol=1e-9)
    first = drawn(network)
    assert first["vf.1.norm.weight"].tolist() == [1.0] * 3
    assert first["vf.1.norm.bias"].tolist() == [0.0] * 3


def normed(x: np.ndarray, weights: Any, name: str, *which: int) -> np.ndarray:
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return scaled * weights[f"{name}.weight"][which] + weights[f"{name}.bias"][which]


def test_each_of_twin_critics_has_layer_norms_of_its_own():
    config = {**MODEL_CONFIG, "fcnet_hiddens": [4, 3], "fcnet_activation": "relu", "layer_norm": True}
    critics, rng = TwinCritics(BOX, config, num_inputs=1, num_values=2), np.random.default_rng(0)
    weights = {each.name: rng.normal(size=each.shape) for each in critics.parameters}
    obs, inputs = rng.normal(size=(5, 2)).astype(np.float32), rng.normal(size=(5, 1))
    found = critics.values(ops, weights, obs, inputs)
    assert found.shape == (2, 5, 2)
    for critic in range(2):
        x = np.concatenate([obs, inputs], -1)
        for n in range(2):
            x = x @ weights[f"qf.{n}.weight"][critic] + weights[f"qf.{n}.bias"][critic]
            x = np.maximum(normed(x, weights, f"qf.{n}.norm", critic), 0.0)
        expected = x @ weights["qf.2.weight"][critic] + weights["qf.2.bias"][critic]
        np.testing.assert_allclose(found[critic], expected, rtol=1e-6)


def test_a_build_that_raised_and_is_called_again_draws_the_same_weights():
    class Failing(PPOLearner):
        fails = True

        def configure_optimizers_for_module(self, module_id, config=None):
            if self.fails:
                raise RuntimeError("a file is not there yet")
            super().configure_optimizers_for_module(module_id, config)

    fresh, again = (Failing(config=ppo_config()) for _ in range(2))
    for learner in (fresh, again):
        drawn = learner.stream("own").random()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not there yet"):
            again.build()
    assert again.stream("own").random() == fresh.stream("own").random() != drawn, "its own draws stay"
    Failing.fails = False
    fresh.build()
    again.build()
    for name, weight in fresh.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(again.get_weights()["default_policy"][name], weight)
