"""Neutral networks on each backend: equal weights and outputs, training on uint8 images, and one of a user."""

from functools import cache

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import ppo_batch, ppo_config, quick_mode

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, numpy_ops
from plugrad.networks import Network, initializers
from plugrad.networks.layers import Parameter
from plugrad_ppo import PPOConfig

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID
ROWS = 32
SPACE = gym.spaces.Box(0, 255, (40, 40, 1), np.uint8)


def images(rows: int = ROWS, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, 40, 40, 1), np.uint8)


def batch() -> dict[str, np.ndarray]:
    return {**ppo_batch(ROWS), Columns.OBS: images()}


def config(backend: str, compile: str = "none", **model) -> PPOConfig:
    """PPO on images, with the convolutions that images get by themselves."""
    return (
        ppo_config(backend, minibatch_size=16, num_epochs=4, lr=1e-3, grad_clip=None)
        .framework(backend, compile=compile)
        .environment(observation_space=SPACE)
        .rl_module(model_config={"fcnet_hiddens": [32], **model})
    )


@cache
def built(backend: str, shared: bool) -> Learner:
    return config(backend, vf_share_layers=shared).build_learner()


@cache
def outputs_of_numpy(shared: bool) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The weights and outputs of the reference backend, which computes them in float64."""
    module = built("numpy", shared).module[P]
    weights = {name: np.float64(array) for name, array in module.get_state().items()}
    outputs = module.network.forward(numpy_ops, weights, {Columns.OBS: images()}, value=True)
    return module.get_state(), outputs


@pytest.mark.parametrize("shared", [False, True])
def test_equal_seeds_give_the_weights_and_within_1e_6_the_outputs_of_numpy(backend, shared):
    learner = built(backend, shared)
    weights, expected = outputs_of_numpy(shared)
    found = learner.module[P].get_state()
    assert list(found) == list(weights)
    assert f"{'encoder' if shared else 'vf'}.conv.2.weight" in found
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name], array)
    tensors = learner._convert_batch_type({Columns.OBS: images()})
    outputs = learner._convert_to_numpy(learner.module[P].forward_train(tensors))
    assert list(outputs) == list(expected)
    for column, want in expected.items():
        np.testing.assert_allclose(outputs[column], want, rtol=0, atol=1e-6)
        assert np.abs(want).max() > 1e-4


def test_stacked_frames_with_channels_first_get_convolutions_that_act_and_learn_as_on_numpy(backend):
    space = gym.spaces.Box(0, 255, (4, 24, 22), np.uint8)
    obs = np.random.default_rng(3).integers(0, 256, (ROWS, *space.shape), np.uint8)
    found = config(backend).environment(observation_space=space).build_learner()
    numpy = config("numpy").environment(observation_space=space).build_learner()
    weights = {name: np.float64(array) for name, array in numpy.module[P].get_state().items()}
    assert weights["pi.conv.0.weight"].shape == (4, 4, 4, 16)
    expected = numpy.module[P].network.forward(numpy_ops, weights, {Columns.OBS: obs}, value=True)
    tensors = found._convert_batch_type({Columns.OBS: obs})
    outputs = found._convert_to_numpy(found.module[P].forward_train(tensors))
    for column, want in expected.items():
        np.testing.assert_allclose(outputs[column], want, rtol=0, atol=1e-6)
    acted = found.compute_actions(obs)
    np.testing.assert_allclose(acted["vf_preds"], expected["vf_preds"], rtol=0, atol=1e-6)
    results = found.update({**ppo_batch(ROWS), Columns.OBS: obs})
    assert np.isfinite(results[P]["total_loss"])


def test_acting_goes_through_the_framework_and_gives_the_outputs_of_numpy(backend, monkeypatch):
    learner = built(backend, False)
    _, expected = outputs_of_numpy(False)

    def refuse(*args):
        raise AssertionError("numpy convolutions are slow")

    monkeypatch.setattr(numpy_ops, "conv2d", refuse)
    columns = learner.compute_actions(images(), explore=True)
    for column, want in expected.items():
        np.testing.assert_allclose(columns[column], want, rtol=0, atol=1e-6)
        assert columns[column].dtype == np.float32
    np.testing.assert_allclose(
        learner.compute_values(images()), expected[Columns.VF_PREDS], rtol=0, atol=1e-6
    )
    greedy = learner.compute_actions(images(), explore=False)
    np.testing.assert_array_equal(greedy[Columns.ACTIONS], expected[Columns.ACTION_DIST_INPUTS].argmax(-1))
    assert Columns.VF_PREDS not in greedy


class Looking(Learner):
    """Notes the type of the observations that each loss is computed from, as text: they may be traced."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        self.seen = getattr(self, "seen", set()) | {str(batch[Columns.OBS].dtype)}
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


@pytest.mark.parametrize("compile", ["none", "auto"])
def test_one_update_on_uint8_images_lowers_the_value_loss(backend, compile):
    learner = config(backend, compile).learners(learner_class=Looking).build_learner()
    targets = batch()[Columns.VALUE_TARGETS]

    def value_loss() -> float:
        return float(np.square(learner.compute_values(images()) - targets).mean())

    before = value_loss()
    results = learner.update(batch())
    assert value_loss() < 0.9 * before
    assert np.isfinite(results[P]["vf_loss"])
    assert len(learner.seen) == 1
    assert "uint8" in learner.seen.pop()


def updated(backend: str, compile: str) -> dict[str, np.ndarray]:
    learner = config(backend, compile).build_learner()
    learner.update(batch())
    return learner.get_weights()[P]


@needs.backends("torch", "tf2", "jax")
def test_an_update_leaves_the_same_weights_on_all_backends():
    start = built("numpy", False).get_weights()[P]
    one, *others = (updated(backend, "auto") for backend in ("torch", "tf2", "jax"))
    for name, array in one.items():
        for other in others:
            np.testing.assert_allclose(array, other[name], rtol=0, atol=1e-5, err_msg=name)
        assert np.abs(array - start[name]).max() > 5e-4, name


# --- networks of an algorithm's own ---


class Averages(Network):
    """One weight per action, times the mean of the observation: a network that no spec could describe."""

    parameters = (Parameter("by_action", (2,), initializers.constant, 3.0),)

    def forward(self, ops, weights, batch, *, value):
        mean = ops.mean(batch[Columns.OBS], axis=-1, keepdims=True)
        return {Columns.ACTION_DIST_INPUTS: mean * weights["by_action"], Columns.VF_PREDS: mean[:, 0]}


class OwnNetwork(Learner):
    def _build_network(self, *, module_id, config, module_spec):
        assert (module_id, config, module_spec.action_space.n) == (P, self.config, 2)
        return Averages()


def test_a_network_of_ones_own_is_built_trained_and_asked_on_every_backend(backend):
    config = ppo_config(backend, grad_clip=None).framework(backend, compile=quick_mode(backend))
    learner = config.learners(learner_class=OwnNetwork).build_learner()
    obs = np.array([[1.0, 2.0, 6.0]], np.float32)
    np.testing.assert_allclose(learner.compute_actions(obs)[Columns.ACTION_DIST_INPUTS], [[9.0, 9.0]])
    learner.update(ppo_batch(16))
    weights = learner.get_weights()[P]
    assert list(weights) == ["by_action"]
    assert (weights["by_action"] != 3.0).all()
