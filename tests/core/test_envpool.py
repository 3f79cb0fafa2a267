"""`vectorization_mode="envpool"`: a native pool with the dynamics and ends of the environments it stands for."""

import gymnasium as gym
import needs
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from sampling import Sampling, balance, make_runner
from test_env_contract import algorithm_of

from plugrad.errors import ConfigError
from plugrad.sampling.vectorization import get_env_spaces, make_vector_envs

needs.extra("envpool")


def runner_of(act=balance, env="CartPole-v1", seed=0, **settings):
    return make_runner(act, seed, env=env, vectorization_mode="envpool", **settings)


def push_left(observations):
    return {"actions": np.zeros(len(observations), np.int64)}


def sway(observations):
    """Falls after ten to a few hundred steps."""
    return {"actions": (observations[:, 2] > 0).astype(np.int64)}


def test_each_step_is_that_of_gymnasiums_cartpole():
    env = gym.make("CartPole-v1").unwrapped
    episodes = [each for _ in range(3) for each in runner_of(sway, num_envs_per_env_runner=4).sample(60)]
    assert sum(each.terminated for each in episodes) > 5
    for episode in episodes:
        for t, action in enumerate(episode.actions):
            env.reset()
            env.state = episode.observations[t].astype(np.float64)
            observation, reward, terminated, _, _ = env.step(action)
            np.testing.assert_allclose(episode.observations[t + 1], observation, atol=1e-5)
            assert reward == episode.rewards[t] == 1
            assert terminated == (episode.terminated and t + 1 == len(episode))


def test_an_episode_ends_by_falling_or_by_the_limit_and_begins_near_the_middle():
    runner = runner_of(rollout_fragment_length=600)
    ended = [chunk for chunk in runner.sample() if chunk.is_done]
    assert any(chunk.truncated for chunk in ended)
    for episode in ended:
        assert episode.truncated == (len(episode) == 500)
        assert np.abs(episode.observations[0]).max() <= 0.05
    assert runner.get_metrics()["episode_len_mean"] == np.mean([len(each) for each in ended])


def test_statistics_of_episodes_are_those_of_gymnasium():
    def mean_length(mode):
        runner = make_runner(push_left, env="CartPole-v1", vectorization_mode=mode, num_envs_per_env_runner=8)
        return np.mean([len(each) for each in runner.sample(300) if each.is_done])

    assert mean_length("envpool") == pytest.approx(mean_length("sync"), abs=0.15)


def test_a_seed_names_the_episodes_of_each_environment():
    def firsts(seed):
        return np.stack([chunk.observations[0] for chunk in runner_of(seed=seed).sample(2)])

    assert np.array_equal(firsts(7), firsts(7))
    unlike = [*firsts(7), *firsts(8), *firsts(None), *firsts(None)]
    assert len(np.unique(unlike, axis=0)) == len(unlike) == 12


def test_a_save_is_a_cut():
    whole, resumed = runner_of(sway, seed=3), runner_of(sway, seed=3)
    whole.sample(5)
    state = whole.get_state()
    assert state["running"] is None
    whole.truncate()
    resumed.set_state(state)
    for one, other in zip(whole.sample(40), resumed.sample(40), strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        assert one.id_ == other.id_


@pytest.mark.parametrize("frames", [1, 3])
def test_images_are_bytes_and_are_stacked_by_envpools_own_option(frames):
    runner = runner_of(push_left, "Pong-v5", num_envs_per_env_runner=1, env_config={"stack_num": frames})
    assert runner.observation_space == Box(0, 255, (frames, 84, 84), np.uint8)
    (episode,) = runner.sample(3)
    assert episode.observations.shape == (4, frames, 84, 84)
    assert episode.observations.dtype == np.uint8


def test_parts_of_a_dict_are_one_row_and_bounds_that_mean_nothing_are_infinite():
    config = Sampling(env="HopperHop-v1", vectorization_mode="envpool")
    space = get_env_spaces(config).observations
    assert isinstance(space, Dict)
    assert all(np.isneginf(part.low).all() and np.isposinf(part.high).all() for part in space.values())
    envs = make_vector_envs(config)
    rows, _ = envs.reset((1,))
    assert rows.shape == (3, *envs.row_space.shape)
    assert rows.dtype == envs.row_space.dtype == np.float64
    envs.close()


def test_bounds_that_mean_something_are_those_of_gymnasium():
    space = get_env_spaces(Sampling(env="MountainCar-v0", vectorization_mode="envpool")).observations
    own = gym.make("MountainCar-v0").observation_space
    np.testing.assert_allclose([space.low, space.high], [own.low, own.high])


def test_numbers_are_one_hot():
    runner = runner_of(push_left, "FrozenLake-v1")
    assert runner.observation_space == Box(0, 1, (16,), np.float32)
    assert all((each.observations.sum(-1) == 1).all() for each in runner.sample(9))


def test_an_algorithm_trains_and_evaluates_in_a_pool():
    algorithm = algorithm_of("CartPole-v1", vectorization_mode="envpool")
    assert algorithm.train()["env_runners/num_env_steps_sampled"] >= 14
    assert algorithm.evaluate(num_episodes=2)["episode_len_mean"] >= 8
    algorithm.stop()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"env": "CartPoel-v1"}, r"envpool has no environment 'CartPoel-v1'.*Did you mean 'CartPole-v1'"),
        ({"env": "ALE/Pong-v5"}, r"envpool has no environment 'ALE/Pong-v5'.*Did you mean 'Pong-v5'"),
        ({"env": gym.Env}, "envpool has no environment 'gymnasium.core:Env'"),
        ({"env_config": {"gravity": 1}}, r"envpool cannot make 'CartPole-v1' with env_config={'gravity': 1}"),
        ({"env_config": {"num_envs": 1}}, "env_config: 'num_envs' of envpool follows from other settings"),
        ({"frame_stack": 4}, r"frame_stack=4 needs vectorization_mode=.*env_config={'stack_num': 4}"),
        ({"time_limit": 4}, "time_limit=4 needs vectorization_mode="),
    ],
)
def test_what_a_pool_cannot_do_is_said(settings, words):
    with pytest.raises(ConfigError, match=words):
        runner_of(**settings)
