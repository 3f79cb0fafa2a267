"""gSDE: numbers by hand, gradients, noise that is held for some steps, what does not see it, resuming."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import digest, largest_difference, quick_mode
from threads import on_all

import plugrad
from plugrad import numpy_ops
from plugrad.columns import Columns
from plugrad.distributions import StateDependentGaussian, state_dependent_class
from plugrad.errors import ConfigError
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_config
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

SPACE = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
OBSERVATIONS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
D, K, P = 2, 3, "default_policy"
OBS = np.random.default_rng(0).uniform(-1.0, 1.0, (1, 3)).astype(np.float32)


def class_of(ops: Any) -> type[StateDependentGaussian]:
    return state_dependent_class(SPACE, ops, features=K, noise_steps=1)


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def by_hand(given: Any) -> tuple[Any, Any]:
    """Means and variances [rows, d] in float64."""
    mean, features = np.split(given.astype(np.float64), [D], axis=-1)
    return mean, np.square(features.reshape(-1, D, K)).sum(-1)


@pytest.fixture
def ops(backend: str) -> Any:
    learner = ActorCriticLearner(config=tiny_config(backend).framework(backend, device="cpu"))
    learner.build()
    return learner.ops


def test_numbers_are_those_of_a_gaussian_with_the_variance_of_the_features(ops: Any) -> None:
    first, second, actions = numbers(0, 4, D + D * K), numbers(1, 4, D + D * K), numbers(2, 4, D)
    noise = numbers(3, 4, D * K)
    one, other = (class_of(ops).from_logits(ops.asarray(each)) for each in (first, second))
    (mean, variance), (other_mean, other_variance) = by_hand(first), by_hand(second)
    logp = -0.5 * (np.square(actions - mean) / variance + np.log(2.0 * np.pi * variance))
    entropy = 0.5 * np.log(2.0 * np.pi * np.e * variance)
    distance = np.square(mean - other_mean)
    kl = 0.5 * ((variance + distance) / other_variance - 1.0 + np.log(other_variance / variance))
    drawn = mean + (first[:, D:] * noise).reshape(-1, D, K).sum(-1)
    for found, wanted in (
        (one.logp(ops.asarray(actions)), logp.sum(-1)),
        (one.entropy(), entropy.sum(-1)),
        (one.kl(other), kl.sum(-1)),
        (one.sample_by(ops.asarray(noise)), drawn),
        (one.mode(), mean),
    ):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)
    rng = np.random.default_rng(4)
    wanted = class_of(numpy_ops).from_logits(first).sample(np.random.default_rng(4))
    np.testing.assert_allclose(np.asarray(one.sample_by(ops.asarray(one.noise(rng)))), wanted, rtol=1e-5)


def test_gradients_are_finite_differences(ops: Any, gradients: Callable[..., Any]) -> None:
    given, other = (numbers(seed, 2, D + D * K).astype(np.float64) for seed in (5, 6))
    actions = numbers(7, 2, D).astype(np.float64)

    def objective(some_ops: Any, x: Any) -> Any:
        p, q = (class_of(some_ops).from_logits(each) for each in (x, some_ops.asarray(other)))
        terms = p.logp(some_ops.asarray(actions)) + 2.0 * p.entropy() + 3.0 * p.kl(q) + 4.0 * q.kl(p)
        return some_ops.sum(terms)

    expected = np.zeros_like(given)
    for index in np.ndindex(given.shape):
        shift = np.zeros_like(given)
        shift[index] = 1e-6
        expected[index] = (objective(numpy_ops, given + shift) - objective(numpy_ops, given - shift)) / 2e-6
    (found,) = gradients(lambda x: objective(ops, x), [ops.asarray(given)])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-3, atol=1e-3)


def config(backend: str, algorithm: Any = PPOConfig, **model: Any) -> Any:
    settings = {"fcnet_hiddens": [4], "action_distribution": "gsde", "log_std_init": -1.0, **model}
    made = algorithm().framework(backend, compile=quick_mode(backend))
    made = made.environment(observation_space=OBSERVATIONS, action_space=SPACE).debugging(seed=0)
    return made.rl_module(model_config=settings)


def rows(count: int = 8) -> dict[str, Any]:
    return {
        Columns.OBS: numbers(8, count, 3),
        Columns.ACTIONS: numbers(9, count, D),
        Columns.ACTION_LOGP: np.full(count, -2.0, np.float32),
        Columns.ADVANTAGES: np.zeros(count, np.float32),
        Columns.VALUE_TARGETS: np.zeros(count, np.float32),
    }


def test_the_features_are_the_last_layer_and_the_deviation_does_not_shape_them(backend: str) -> None:
    plain = {"minibatch_size": None, "num_epochs": 1, "grad_clip": None, "lr": 0.01}
    learner = config(backend).training(**plain, entropy_coeff=1.0, vf_loss_coeff=0.0).build_learner()
    before, obs = learner.get_weights()[P], rows()[Columns.OBS]
    hidden = np.tanh(obs @ before["pi.0.weight"] + before["pi.0.bias"])
    acted = learner.compute_actions(obs)
    variance = np.square(hidden) @ np.square(np.exp(before["pi.log_std"])).T
    mean = hidden @ before["pi.out.weight"] + before["pi.out.bias"]
    z = np.square(acted[Columns.ACTIONS] - mean) / variance
    logp = -0.5 * (z + np.log(2.0 * np.pi * variance)).sum(-1)
    np.testing.assert_allclose(acted[Columns.ACTION_LOGP], logp, rtol=1e-3, atol=1e-3)
    learner.update(rows())  # of the entropy alone
    after = learner.get_weights()[P]
    np.testing.assert_array_equal(after["pi.0.weight"], before["pi.0.weight"])
    assert (after["pi.log_std"] > before["pi.log_std"]).all()


@pytest.mark.parametrize("as_tensors", [False, True], ids=["numpy", "tensors"])
def test_the_noise_of_an_observation_is_held_until_it_is_drawn_again(backend: str, as_tensors: bool) -> None:
    rng = np.random.default_rng(1)

    def act(learner: Any, obs: Any = OBS) -> Any:
        if as_tensors:
            obs = learner._convert_batch_type({"obs": obs})["obs"]
        acted = learner.compute_actions(obs, rng=rng, as_tensors=as_tensors)[Columns.ACTIONS]
        return np.asarray(acted).ravel().tolist()

    learner = config(backend, sde_sample_freq=3).build_learner()
    found = [act(learner) for _ in range(7)]
    assert found[0] == found[1] == found[2] != found[3] == found[4] == found[5] != found[6]
    learner = config(backend).build_learner()
    found = [act(learner) for _ in range(5)]
    assert all(each == found[0] for each in found)
    first, second = np.split(np.array(act(learner, np.repeat(OBS, 2, 0))), 2)
    assert (first != second).all(), "each environment has noise of its own"
    learner.set_weights(learner.get_weights())
    assert act(learner) != found[0]
    learner = config(backend, action_distribution="gaussian").build_learner()
    assert act(learner) != act(learner)


def test_the_noise_of_a_policy_that_acts_changes_with_its_episodes_and_is_its_own() -> None:
    learner = config("numpy").build_learner()
    policy, seen, rng = learner.get_policy(), np.repeat(OBS, 2, 0), np.random.default_rng(1)
    before = learner.compute_actions(seen, rng=rng)[Columns.ACTIONS]
    first, again, one_begins, then = (
        policy.predict(seen, deterministic=False, episode_start=begins)[0]
        for begins in ([True, True], None, [True, False], [False, False])
    )
    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(one_begins[1], first[1])
    assert (one_begins[0] != first[0]).all()
    np.testing.assert_array_equal(then, one_begins)
    alone = policy.predict(OBS[0], deterministic=False)[0]
    assert (policy.predict(OBS[0], deterministic=False, episode_start=[True])[0] != alone).any()
    np.testing.assert_array_equal(learner.compute_actions(seen, rng=rng)[Columns.ACTIONS], before)


class Still(gym.Env):
    """All observations are alike, and an episode has three steps."""

    observation_space, action_space = OBSERVATIONS, SPACE

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.ones(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.ones(3, np.float32), 0.0, self.steps == 3, False, {}


@pytest.mark.parametrize("num_envs", [1, 2])
def test_recorded_episodes_have_noise_of_their_own_each(num_envs: int) -> None:
    chosen = config("numpy").environment(Still).env_runners(num_envs_per_env_runner=num_envs)
    algorithm = chosen.build_algo()
    episodes = algorithm.record(4, explore=True).episodes
    algorithm.stop()
    actions = [np.asarray(each.actions) for each in episodes]
    assert all((each == each[0]).all() for each in actions)
    assert len({each[0].tobytes() for each in actions}) == len(episodes) >= 4


class Walk(gym.Env):
    """The reward is that of staying at 0; episodes of 7 steps, so that they end within and between rollouts."""

    observation_space, action_space = OBSERVATIONS, SPACE

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.place = 0, self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return self.place, {}

    def step(self, action):
        self.steps += 1
        self.place = np.clip(self.place + 0.1 * float(action.sum()), -1.0, 1.0).astype(np.float32)
        return self.place, -float(np.abs(self.place).sum()), self.steps == 7, False, {}


@pytest.mark.parametrize("algorithm_config", [PPOConfig, SACConfig])
def test_training_goes_on_bit_for_bit_from_a_checkpoint(
    backend: str, tmp_path: Path, algorithm_config: Any
) -> None:
    chosen = config(backend, algorithm_config, sde_sample_freq=5).environment(Walk)
    chosen = chosen.env_runners(num_envs_per_env_runner=2)
    chosen = chosen.training(train_batch_size=16, minibatch_size=16, num_epochs=2)
    if algorithm_config is PPOConfig:
        chosen = chosen.training(use_kl_loss=True)
    else:
        chosen = chosen.env_runners(rollout_fragment_length=8)
        chosen = chosen.training(num_steps_sampled_before_learning_starts=8)
    algorithm = chosen.build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path / "run")
    results = algorithm.train()
    loss = "mean_kl_loss" if algorithm_config is PPOConfig else "policy_loss"
    assert np.isfinite(results[f"learners/default_policy/{loss}"])
    again = chosen.build_algo()
    again.restore_from_path(tmp_path / "run")
    again.train()
    assert digest(again.learner_group.get_weights()) == digest(algorithm.learner_group.get_weights())
    for each in (algorithm, again):
        each.stop()


def test_a_saved_policy_and_a_model_for_a_runtime_give_the_mean(tmp_path: Path) -> None:
    learner = config("numpy").build_learner()
    policy, seen = learner.get_policy(), rows()[Columns.OBS]
    mean = learner.compute_actions(seen, explore=False)[Columns.ACTION_DIST_INPUTS][:, :D]
    policy.save(tmp_path / "policy.safetensors")
    loaded = plugrad.load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_allclose(loaded.predict(seen)[0], mean, atol=1e-6)
    needs.extra("onnx")
    runtime = needs.extra("onnxruntime")
    policy.export_onnx(tmp_path / "policy.onnx")
    found = runtime.InferenceSession(tmp_path / "policy.onnx").run(None, {"obs": seen})[0]
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_sacs_actions_and_their_density_are_the_papers_squashed(backend: str) -> None:
    learner = config(backend, SACConfig).build_learner()
    weights, obs = learner.get_weights()[P], rows()[Columns.OBS]
    hidden = np.float64(np.maximum(obs @ weights["pi.0.weight"] + weights["pi.0.bias"], 0.0))
    mean = hidden @ weights["pi.out.weight"] + weights["pi.out.bias"]
    std = np.exp(weights["pi.log_std"])
    acted = learner.compute_actions(obs, rng=np.random.default_rng(1))
    drawn = np.random.default_rng(1).standard_normal((len(obs), D, std.shape[1]), np.float32)
    u = mean + (hidden[:, None] * std * drawn).sum(-1)
    np.testing.assert_allclose(acted[Columns.ACTIONS], 2.0 * np.tanh(u), rtol=1e-3, atol=1e-4)
    variance = np.square(hidden) @ np.square(std).T + 1e-6
    logp = -0.5 * (np.square(u - mean) / variance + np.log(2.0 * np.pi * variance)) - np.log1p(
        -(np.tanh(u) ** 2)
    )
    np.testing.assert_allclose(acted[Columns.ACTION_LOGP], logp.sum(-1), rtol=1e-3, atol=1e-3)
    greedy = learner.compute_actions(obs, explore=False)[Columns.ACTIONS]
    np.testing.assert_allclose(greedy, 2.0 * np.tanh(mean), rtol=1e-4, atol=1e-5)
    tensor = learner._convert_batch_type({"obs": obs})["obs"]
    same = learner.compute_actions(tensor, rng=np.random.default_rng(1), as_tensors=True)[Columns.ACTIONS]
    np.testing.assert_allclose(np.asarray(same), acted[Columns.ACTIONS], rtol=1e-4, atol=1e-5)


def replayed(seed: int) -> dict[str, Any]:
    return {
        Columns.OBS: numbers(seed, 6, 3),
        Columns.ACTIONS: np.clip(numbers(seed + 1, 6, D), -1.9, 1.9),
        Columns.REWARDS: numbers(seed + 2, 6),
        Columns.NEXT_OBS: numbers(seed + 3, 6, 3),
        Columns.TERMINATEDS: np.arange(6) % 3 == 0,
    }


@cache
def updated_reference() -> Any:
    learner = (
        config("numpy", SACConfig).training(optimizer={"type": "sgd"}, minibatch_size=None).build_learner()
    )
    start = learner.get_weights()
    learner.update(replayed(1))
    return start, learner.get_weights()


def test_sacs_update_is_that_of_finite_differences(backend: str) -> None:
    learner = (
        config(backend, SACConfig).training(optimizer={"type": "sgd"}, minibatch_size=None).build_learner()
    )
    start, expected = updated_reference()
    assert np.abs(expected[P]["pi.log_std"] - start[P]["pi.log_std"]).max() > 1e-7
    learner.update(replayed(1))
    assert largest_difference(learner.get_weights(), expected) < 1e-6


@needs.backends("torch")
def test_two_learners_of_sac_are_one() -> None:
    """In threads; tests/group has remote ones on every backend."""
    made = config("torch", SACConfig).training(minibatch_size=4, train_batch_size=6)
    one, *two = (made.build_learner() for _ in range(3))

    def learn(learner: Any) -> Any:
        return [learner.update(replayed(seed))[P]["total_loss"] for seed in (1, 5)]

    np.testing.assert_allclose(on_all(two, learn), [learn(one)] * 2, rtol=1e-4)
    assert largest_difference(two[0].get_weights(), one.get_weights()) < 1e-5


def test_what_has_no_state_dependent_noise_is_said() -> None:
    with pytest.raises(ConfigError, match=r"has a distribution of its own.*leave action_distribution out"):
        config("numpy", TD3Config).build_learner()
    with pytest.raises(ConfigError, match="two distributions: set one"):
        config("numpy", squash_actions=True).build_learner()
    with pytest.raises(ConfigError, match="State-dependent noise needs a float Box"):
        config("numpy").environment(None, action_space=gym.spaces.Discrete(2)).build_learner()
    with pytest.raises(ConfigError, match="sde_sample_freq=0: must be -1, or a whole number above 0"):
        config("numpy", sde_sample_freq=0).build_learner()
