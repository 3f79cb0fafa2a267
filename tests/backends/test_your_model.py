"""The models of docs/your-model.md learn, are saved and loaded, and act, on their framework."""

from functools import cache

import gymnasium as gym
import numpy as np
import pytest
from model_tasks import STEPS, Follow, Look, Recall
from pages import names_of_page

from plugrad import DEFAULT_MODULE_ID, load_policy
from plugrad.distributions import required_input_dim
from plugrad.errors import ConfigError

P = DEFAULT_MODULE_ID
TASKS = {
    "Plain": Follow,
    "Residual": Follow,
    "Normed": Follow,
    "Window": Recall,
    "Camera": Look,
    "Memory": Recall,
}


@pytest.fixture
def page(backend, tmp_path, monkeypatch):
    """What the page defines, run once for each backend."""
    monkeypatch.chdir(tmp_path)
    return cached_page(backend)


cached_page = cache(lambda backend: names_of_page("your-model.md", backend))


def seed(backend):
    if backend == "torch":
        import torch

        torch.manual_seed(0)
    elif backend == "tf2":  # models of JAX bring their seeds
        import tensorflow as tf

        tf.keras.utils.set_random_seed(0)


def mean_return(policy, env, episodes=10):
    """The mean share of right answers."""
    total = 0.0
    for number in range(episodes):
        (observation, _), state, done = env.reset(seed=number), None, False
        while not done:
            action, state = policy.predict(observation, state)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, done = total + reward, terminated or truncated
    return total / (episodes * STEPS)


@pytest.mark.cross_product
@pytest.mark.parametrize("name", TASKS)
def test_a_model_learns_is_saved_and_acts(backend, page, name, tmp_path):
    seed(backend)
    model, env = page[name], TASKS[name]()
    config = page["config_of"](model, TASKS[name]).training(gamma=0.0, num_epochs=8)
    config = config.env_runners(num_envs_per_env_runner=32)
    if backend == "jax":  # eager steps of JAX take a hundred times as long
        config = config.framework(backend, compile="auto")
    if name == "Window":
        config, env = config.env_runners(frame_stack=4), gym.wrappers.FrameStackObservation(env, 4)
    algorithm = config.build_algo()
    for _ in range(25):
        result = algorithm.train()
        if result["env_runners/episode_return_mean"] > 0.93 * STEPS:
            break
    algorithm.save_to_path(tmp_path / "saved")
    trained = algorithm.get_policy()
    algorithm.stop()
    spaces = {"observation_space": trained.observation_space, "action_space": trained.action_space}
    policy = load_policy(tmp_path / "saved", module=model(**spaces))
    assert mean_return(policy, env) > 0.9, result["env_runners/episode_return_mean"]


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_a_part_that_is_computed_again_has_the_same_gradients(backend, page, mode):
    """In eager steps and in a program, beside the same model without; PyTorch's program is refused with the reason."""
    found = []
    for name, compile_mode in (("Residual", "none"), ("Recomputed", mode)):
        seed(backend)
        config = page["config_of"](page[name]).framework(backend, compile=compile_mode)
        learner = config.build_learner(env=gym.make("CartPole-v1"))
        obs = np.eye(4, dtype=np.float32)
        batch = {**learner.compute_actions(obs), "obs": obs, "value_targets": np.ones(4, np.float32)}
        batch["advantages"] = np.arange(4, dtype=np.float32)
        before = learner.get_weights()[P]
        learner.update(batch, minibatch_size=2, num_epochs=2)
        after = learner.get_weights()[P]
        floats = [each for each, values in after.items() if values.dtype == np.float32]  # no seeds of flax
        found.append([after[each] - before[each] for each in floats])
    for plain, recomputed in zip(*found, strict=True):
        assert np.any(plain)
        np.testing.assert_allclose(recomputed, plain, rtol=0, atol=1e-6)
    if mode == "complete_update":
        expected = "none: eager" if backend == "torch" else "complete_update: "
        assert learner.update_mode.startswith(expected)


@pytest.mark.parametrize("way", ["subclassed", "wrapped"])
def test_each_way_adds_an_auxiliary_loss_that_is_trained(page, way):
    learner = page[way].build_learner(env=gym.make("CartPole-v1")) if way == "subclassed" else page[way]
    learner.build()
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(64, 4)).astype(np.float32)
    acted = learner.compute_actions(obs)
    zeros = np.zeros(64, np.float32)
    batch = {**acted, "obs": obs, "advantages": zeros, "value_targets": zeros}
    losses = [learner.update(batch)[P]["decoding_loss"] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("space", "width"),
    [
        (gym.spaces.Discrete(5, start=2), 5),
        (gym.spaces.MultiDiscrete([[2, 3], [4, 5]]), 14),
        (gym.spaces.MultiBinary(3), 6),
        (gym.spaces.Box(-1.0, 1.0, (2, 3)), 12),
        (gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(0.0, 1.0, (2,))]), 6),
        (gym.spaces.Dict(a=gym.spaces.Discrete(2), b=gym.spaces.Discrete(4)), 6),
    ],
)
def test_required_input_dim_is_the_width_of_the_policy_head(space, width):
    assert required_input_dim(space) == width


def test_a_space_without_a_distribution_has_no_width():
    with pytest.raises(ConfigError, match="No action distribution"):
        required_input_dim(gym.spaces.Text(3))
