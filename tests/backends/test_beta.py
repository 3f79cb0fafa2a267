"""Beta distributions: numbers against formulas in float64, gradients, and PPO with them within the bounds."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import quick_mode

import plugrad
from plugrad import numpy_ops
from plugrad.distributions import Beta, beta_class
from plugrad.distributions.continuous import log_beta
from plugrad.errors import ConfigError
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_config
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

SPACE = gym.spaces.Box(np.float32([-1, 0, 2]), np.float32([3, 1, 2.5]))
GRID = np.sin(np.linspace(0.0, np.pi / 2, 200_001)[1:-1]) ** 2  # dense where densities begin steeply


def logits(rows: int, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-3.0, 5.0, (rows, 6)).astype(np.float32)


def densities(given: Any) -> Any:
    """Densities [rows, 3, grid] of actions in [0, 1], normalised by a sum, so without any Gamma function."""
    alpha, beta = np.split(1.0 + np.logaddexp(0.0, given.astype(np.float64)), 2, axis=-1)
    unnormalised = GRID ** (alpha[..., None] - 1.0) * (1.0 - GRID) ** (beta[..., None] - 1.0)
    return unnormalised / np.trapezoid(unnormalised, GRID, axis=-1)[..., None]


@pytest.fixture
def ops(backend: str) -> Any:
    learner = ActorCriticLearner(config=tiny_config(backend).framework(backend, device="cpu"))
    learner.build()
    return learner.ops


def test_numbers_are_those_of_the_density(ops: Any) -> None:
    first, second = logits(4, 0), logits(4, 1)
    p, q = densities(first), densities(second)
    dist_class = beta_class(SPACE, ops)
    one, other = (dist_class.from_logits(ops.asarray(each)) for each in (first, second))
    place = 60_000
    actions = np.tile((SPACE.low + GRID[place] * (SPACE.high - SPACE.low)).astype(np.float32), (4, 1))
    for found, wanted in (
        (one.logp(ops.asarray(actions)), np.log(p[..., place]).sum(-1)),
        (one.entropy(), -np.trapezoid(p * np.log(p), GRID, axis=-1).sum(-1)),
        (one.kl(other), np.trapezoid(p * np.log(p / q), GRID, axis=-1).sum(-1)),
    ):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)
    peak = SPACE.low + GRID[p.argmax(-1)] * (SPACE.high - SPACE.low)
    np.testing.assert_allclose(np.asarray(one.mode()), peak, atol=1e-4)


def test_the_beta_function_is_that_of_the_gamma_function() -> None:
    a, b = np.meshgrid([1.0, 1.5, 7.0, 300.0], [1.0, 2.5, 40.0])
    expected = np.vectorize(lambda x, y: math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y))(a, b)
    np.testing.assert_allclose(log_beta(numpy_ops, a, b), expected, rtol=0, atol=1e-6)


def test_gradients_are_finite_differences(ops: Any, gradients: Callable[..., Any]) -> None:
    given, other = (logits(2, seed).astype(np.float64) for seed in (2, 3))
    actions = np.random.default_rng(4).uniform(SPACE.low, SPACE.high, (2, 3))

    def objective(some_ops: Any, x: Any) -> Any:
        p, q = (beta_class(SPACE, some_ops).from_logits(each) for each in (x, some_ops.asarray(other)))
        terms = p.logp(some_ops.asarray(actions)) + 2.0 * p.entropy() + 3.0 * p.kl(q) + 4.0 * q.kl(p)
        return some_ops.sum(terms)

    expected = np.zeros_like(given)
    for index in np.ndindex(given.shape):
        shift = np.zeros_like(given)
        shift[index] = 1e-6
        expected[index] = (objective(numpy_ops, given + shift) - objective(numpy_ops, given - shift)) / 2e-6
    (found,) = gradients(lambda x: objective(ops, x), [ops.asarray(given)])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-4)


def test_samples_have_its_mean_and_deviation() -> None:
    given = np.repeat(logits(1, 5), 20_000, 0)
    drawn = (beta_class(SPACE, numpy_ops).from_logits(given).sample(np.random.default_rng(0)) - SPACE.low) / (
        SPACE.high - SPACE.low
    )
    alpha, beta = np.split(1.0 + np.logaddexp(0.0, given[0].astype(np.float64)), 2)
    total = alpha + beta
    np.testing.assert_allclose(drawn.mean(0), alpha / total, atol=0.01)
    np.testing.assert_allclose(drawn.var(0), alpha * beta / (total**2 * (total + 1.0)), atol=0.005)


class Reach(gym.Env):
    """One step: the reward is that of an action near the upper bound; actions beyond the bounds are errors."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32), SPACE

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        assert SPACE.contains(action)
        scaled = (action - SPACE.low) / (SPACE.high - SPACE.low)
        return np.ones(1, np.float32), float(scaled.sum()), True, False, {}


def config(algorithm: Any, backend: str, **model: Any) -> Any:
    settings = {"fcnet_hiddens": [4], "action_distribution": "beta", **model}
    named = algorithm().framework(backend, compile=quick_mode(backend)).environment(Reach)
    return named.rl_module(model_config=settings).debugging(seed=0)


def test_ppo_learns_within_the_bounds_and_its_policy_is_saved(backend: str, tmp_path: Path) -> None:
    sizes = {
        "train_batch_size": 64,
        "minibatch_size": 64,
        "num_epochs": 5,
        "lr": 0.05,
        "entropy_coeff": 0.001,
    }
    algorithm = config(PPOConfig, backend).training(**sizes).build_algo()
    assert issubclass(algorithm._learner.module["default_policy"].get_train_action_dist_cls(), Beta)
    first = algorithm.evaluate(1)["episode_return_mean"]
    for _ in range(10):
        results = algorithm.train()
    assert np.isfinite(results["learners/default_policy/entropy"])
    assert algorithm.evaluate(1)["episode_return_mean"] > first + 0.3
    policy = algorithm.get_policy()
    policy.save(tmp_path / "policy.safetensors")
    loaded, seen = plugrad.load_policy(tmp_path / "policy.safetensors"), np.ones(1, np.float32)
    np.testing.assert_allclose(loaded.predict(seen)[0], policy.predict(seen)[0], atol=1e-6)
    algorithm.stop()


def test_a_model_for_a_runtime_gives_the_peak(tmp_path: Path) -> None:
    needs.extra("onnx")
    runtime = needs.extra("onnxruntime")
    policy = config(PPOConfig, "numpy").build_learner().get_policy()
    policy.export_onnx(tmp_path / "policy.onnx")
    seen = np.ones((2, 1), np.float32)
    found = runtime.InferenceSession(tmp_path / "policy.onnx").run(None, {"obs": seen})[0]
    np.testing.assert_allclose(found, policy.predict(seen)[0], atol=1e-5)


def test_what_has_no_beta_distribution_is_said() -> None:
    with pytest.raises(ConfigError, match=r"has a distribution of its own.*leave action_distribution out"):
        config(SACConfig, "numpy").build_learner()
    with pytest.raises(ConfigError, match="two distributions: set one"):
        config(PPOConfig, "numpy", squash_actions=True).build_learner()
    for space in (gym.spaces.Box(-np.inf, np.inf, (2,)), gym.spaces.Discrete(2)):
        spaces = {"observation_space": Reach.observation_space, "action_space": space}
        with pytest.raises(ConfigError, match="A Beta distribution needs"):
            config(PPOConfig, "numpy").environment(None, **spaces).build_learner()
