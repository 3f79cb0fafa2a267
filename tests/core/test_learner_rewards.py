"""`normalize_rewards` and `clip_rewards`: what learners see; all that is reported has the environment's own."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from sampling import make_runner

from plugrad.columns import Columns
from plugrad.episodes import own_episode
from plugrad.errors import ConfigError, EnvContractError, RestoreMismatchError
from plugrad.learner.update.connectors import add_columns_from_episodes
from plugrad.offline import load_episodes
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

GAMMA = 0.9
EPISODE = 7


class Paying(gym.Env):
    """Pays rewards of all sizes in episodes of 7 steps, the last of which pays a hundred times as much."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, spoilt_step: int | None = None) -> None:
        self.spoilt_step = spoilt_step

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.float32([0.0]), {}

    def step(self, action):
        self.steps += 1
        reward = float(self.np_random.normal(3.0, 5.0))
        reward = (
            np.inf if self.steps == self.spoilt_step else reward * (100.0 if self.steps == EPISODE else 1.0)
        )
        return np.float32([self.steps]), reward, self.steps == EPISODE, False, {}


def act(observations: np.ndarray) -> dict[str, np.ndarray]:
    return {"actions": np.zeros(len(observations), np.int64)}


def runner(**settings: Any) -> Any:
    return make_runner(act, env=Paying, gamma=GAMMA, **{"num_envs_per_env_runner": 3, **settings})


def rewards_by_env(chunks: list[Any], column: str | None = None) -> np.ndarray:
    """[N, T] of the chunks of one sample, whose ids are numbers in the order of the environments at first."""
    ordered = sorted(chunks, key=lambda chunk: int(chunk.id_))
    values = [chunk.rewards if column is None else chunk.extra_model_outputs[column] for chunk in ordered]
    return np.array(values)


def config(kind: Any = PPOConfig, **env_runners: Any) -> Any:
    return (
        kind()
        .framework("numpy")
        .environment(Paying)
        .env_runners(**{"num_envs_per_env_runner": 2, "normalize_rewards": True, **env_runners})
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .training(gamma=GAMMA, train_batch_size=20, minibatch_size=None)
        .debugging(seed=0)
    )


def test_rewards_are_divided_by_the_deviation_of_the_discounted_returns_so_far():
    sampler = runner(normalize_rewards=True)
    seen: list[float] = []
    for _ in range(4):  # each sample is one episode of each environment
        chunks = sampler.sample(EPISODE)
        own, found = rewards_by_env(chunks, Columns.ENV_REWARDS).astype(np.float64), rewards_by_env(chunks)
        returns = np.zeros(3)
        for t in range(EPISODE):
            returns = GAMMA * returns + own[:, t]
            seen.extend(returns)
            expected = np.clip(own[:, t] / np.sqrt(np.var(seen) + 1e-8), -10.0, 10.0)
            np.testing.assert_allclose(found[:, t], expected, rtol=1e-5)
    assert abs(found).max() < abs(own).max()


@pytest.mark.parametrize(("clip", "expected"), [(True, np.sign), (2.5, lambda own: np.clip(own, -2.5, 2.5))])
def test_rewards_are_clipped_to_their_sign_or_to_a_limit(clip, expected):
    chunks = runner(clip_rewards=clip).sample(EPISODE)
    own = rewards_by_env(chunks, Columns.ENV_REWARDS)
    np.testing.assert_array_equal(rewards_by_env(chunks), expected(own).astype(np.float32))
    assert (own > 2.5).any()
    assert (own < 0).any()


def test_rewards_are_clipped_before_they_are_normalized():
    sampler = runner(clip_rewards=1.0, normalize_rewards=True)
    chunks = sampler.sample(EPISODE)
    own = np.clip(rewards_by_env(chunks, Columns.ENV_REWARDS), -1, 1).astype(np.float64)
    returns = [np.zeros(3)]
    for t in range(EPISODE):
        returns.append(GAMMA * returns[-1] + own[:, t])
    assert sampler.reward_normalizer.variance == pytest.approx(np.var(returns[1:]), rel=1e-6)


@pytest.mark.parametrize("settings", [{"normalize_rewards": True}, {"clip_rewards": True}])
def test_returns_that_are_reported_are_of_the_environments_rewards(settings):
    plain, scaled = runner(), runner(**settings)
    for _ in range(3):
        own = plain.sample(10)
        found = scaled.sample(10)
        assert [each.rewards.tolist() for each in own] == [
            own_episode(each).rewards.tolist() for each in found
        ]
        assert plain.get_metrics() == scaled.get_metrics()
        assert [each.rewards.tolist() for each in own] != [each.rewards.tolist() for each in found]


def test_without_the_settings_episodes_are_as_ever():
    (chunk, *_) = runner().sample(EPISODE)
    assert Columns.ENV_REWARDS not in chunk.extra_model_outputs
    assert own_episode(chunk) is chunk


def test_infinite_rewards_spoil_no_statistics():
    sampler = runner(normalize_rewards=True, clip_rewards=True, env_config={"spoilt_step": 3})
    with pytest.raises(
        EnvContractError,
        match=r"environment 0 of 'test_learner_rewards:Paying': its rewards hold NaN or infinity: \[inf\]",
    ):
        sampler.sample(EPISODE)
    assert np.isfinite(sampler.reward_normalizer.variance)
    assert sampler.reward_normalizer.count == 2 * 3


def test_a_runner_continues_from_its_state_to_the_bit():
    sampler, other = runner(normalize_rewards=True), runner(normalize_rewards=True, seed=5)
    sampler.sample(10)  # in the midst of an episode
    other.set_state(sampler.get_state())
    for expected, found in zip(sampler.sample(20), other.sample(20), strict=True):
        np.testing.assert_array_equal(found.rewards, expected.rewards)
    np.testing.assert_equal(other.get_state(), sampler.get_state())


@pytest.mark.parametrize("normalizes", [True, False])
def test_a_state_of_a_run_with_the_other_setting_is_refused_and_changes_nothing(normalizes):
    sampler, other = runner(normalize_rewards=normalizes), runner(normalize_rewards=not normalizes)
    sampler.sample(10)
    before = other.get_state()
    with pytest.raises(RestoreMismatchError, match=f"set normalize_rewards={normalizes}"):
        other.set_state(sampler.get_state())
    np.testing.assert_equal(other.get_state(), before)


def test_a_step_that_only_resets_is_no_reward(monkeypatch):
    entry = {"vector_entry_point": "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"}
    gym.register("NextStep-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv", **entry)
    settings = {"env": "NextStep-v0", "vectorization_mode": "vector_entry_point", "gamma": GAMMA}
    sampler = make_runner(act, normalize_rewards=True, **settings)
    chunks = sampler.sample(60)
    assert any(chunk.is_done for chunk in chunks)
    assert sampler.reward_normalizer.count == sum(map(len, chunks))
    returns = [np.cumsum(GAMMA ** np.arange(len(chunk))) for chunk in chunks]
    assert sampler.reward_normalizer.variance == pytest.approx(np.var(np.concatenate(returns)))
    del gym.registry["NextStep-v0"]


def test_learning_evaluation_recording_and_data_sets(tmp_path):
    algorithm = config().offline_data(output=str(tmp_path / "data")).build_algo()
    results = algorithm.train()
    reported = results["env_runners/episode_return_mean"]
    evaluated, recorded = algorithm.evaluate(3), algorithm.record(3)
    algorithm.train()
    algorithm.stop()
    written = load_episodes(str(tmp_path / "data")).episodes
    for returns in ([evaluated["episode_return_max"]], [each.get_return() for each in recorded.episodes]):
        assert max(map(abs, returns)) > 100  # a normalised return of 7 steps is at most 70
    assert np.mean([each.get_return() for each in written[:2]]) == pytest.approx(reported)
    assert all(Columns.ENV_REWARDS not in each.extra_model_outputs for each in [*written, *recorded.episodes])


def test_the_batch_that_is_learned_from_has_scaled_rewards_only():
    chunks = runner(normalize_rewards=True).sample(EPISODE)
    batch = add_columns_from_episodes(learner=config().build_learner(), batch={}, episodes=chunks)
    batch = batch["default_policy"]
    np.testing.assert_array_equal(batch[Columns.REWARDS], np.concatenate([each.rewards for each in chunks]))
    assert Columns.ENV_REWARDS not in batch


def test_a_replay_buffer_keeps_own_rewards_and_scales_those_that_are_drawn():
    algorithm = config(DQNConfig, rollout_fragment_length=5).training(
        num_steps_sampled_before_learning_starts=20
    )
    algorithm = algorithm.build_algo()
    drawn: list[np.ndarray] = []
    update = algorithm.update

    def watched(batch: Any = None, **settings: Any) -> Any:
        drawn.append(batch["default_policy"][Columns.REWARDS])
        return update(batch, **settings)

    algorithm.update = watched
    for _ in range(12):
        algorithm.train()
    normalizer = algorithm.env_runner.reward_normalizer
    (buffer,) = algorithm._training._buffers.values()
    kept = buffer.sample(100)[0][Columns.REWARDS]
    assert abs(kept).max() > 100
    assert abs(np.concatenate(drawn)).max() <= 10
    assert set(drawn[-1].tolist()) <= set(
        normalizer.normalize(buffer.sample(5000)[0][Columns.REWARDS]).tolist()
    )
    algorithm.stop()


def test_settings_are_checked_and_written():
    chosen = config(clip_rewards=2)
    assert PPOConfig.from_toml(chosen.to_toml()) == chosen
    for value in (0, -1.0, "sign"):
        with pytest.raises(
            ConfigError, match="clip_rewards must be True or False or a number above 0 or None"
        ):
            config(clip_rewards=value)


def test_env_runners_share_the_statistics_of_rewards(tmp_path):
    algorithm = config(
        num_env_runners=2, env_runner_backend="process", num_envs_per_env_runner=1
    ).build_algo()
    own = [algorithm.sample(EPISODE) for _ in range(2)]
    returns = []
    for chunk in (each for chunks in own for each in chunks):
        total = 0.0
        for reward in chunk.extra_model_outputs[Columns.ENV_REWARDS].tolist():
            returns.append(total := GAMMA * total + reward)
    shared = algorithm.env_runner.reward_normalizer
    assert shared.count == len(returns) == 4 * EPISODE
    assert shared.variance == pytest.approx(np.var(returns), rel=1e-5)
    algorithm.save_to_path(tmp_path)
    algorithm.stop()
    resumed = config(num_env_runners=2, env_runner_backend="process", num_envs_per_env_runner=1).build_algo()
    resumed.restore_from_path(tmp_path)
    np.testing.assert_equal(resumed.env_runner.reward_normalizer.get_state(), shared.get_state())
    resumed.stop()
