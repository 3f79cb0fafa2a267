"""`.env_runners(frame_stack=k)`: every observation is the last k frames, wherever a policy acts."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.wrappers import FrameStackObservation
from tiny_runs import TINY, plugrad

from plugrad import load_policy
from plugrad.errors import ConfigError
from plugrad_ppo import PPOConfig


class Counter(gym.Env):
    """Counts the steps of its episodes of 6; it gives the same array each time, as careless environments do."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = Box(0.0, 10.0, (2,), np.float32)
    action_space = Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.reused = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.reused[:] = [0.0, self.np_random.integers(9)]
        return self.reused, {}

    def step(self, action):
        self.steps += 1
        self.reused[0] = self.steps
        return self.reused, float(action), self.steps == 6, False, {}

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


class Parts(gym.Wrapper):
    """The same as a Dict, beside what is discrete."""

    def __init__(self, **settings):
        super().__init__(Counter(**settings))
        self.observation_space = Dict(count=Counter.observation_space, parity=Discrete(2))

    def reset(self, **settings):
        return self.observe(super().reset(**settings)[0]), {}

    def step(self, action):
        observation, *others = super().step(action)
        return self.observe(observation), *others

    def observe(self, count):
        return {"count": count, "parity": int(count[0]) % 2}


def config(env: Any = Counter, frame_stack: int = 3, **env_runners: Any) -> PPOConfig:
    return (
        PPOConfig()
        .framework("numpy")
        .environment(env)
        .env_runners(num_envs_per_env_runner=2, frame_stack=frame_stack, **env_runners)
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .training(train_batch_size=20, minibatch_size=None, num_epochs=1)
        .debugging(seed=0)
    )


@pytest.fixture
def algorithm():
    made = config().build_algo()
    yield made
    made.stop()


def test_the_last_frames_of_the_episode_are_what_is_stored_and_learned_from(algorithm):
    assert algorithm.config.observation_space.shape == (3, 2)
    for episode in algorithm.record(3).episodes:
        counts = np.asarray(episode.observations)[..., 0]
        expected = np.maximum(np.arange(7)[:, None] + [-2, -1, 0], 0)  # the first frame is repeated
        np.testing.assert_array_equal(counts, expected)
    results = algorithm.train()
    assert np.isfinite(results["learners/default_policy/total_loss"])
    assert algorithm.evaluate(1)["episode_len_mean"] == 6


def test_a_policy_takes_what_gymnasiums_wrapper_gives(algorithm, tmp_path):
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    env = FrameStackObservation(Counter(), 3)
    for policy in (algorithm.get_policy(), load_policy(tmp_path)):
        assert policy.observation_space == env.observation_space
        action, _ = policy.predict(env.reset(seed=0)[0])
        assert action in env.action_space


def test_running_episodes_continue_with_their_frames(algorithm, tmp_path):
    algorithm.train()  # 20 steps of 2 environments: both are in the midst of an episode
    algorithm.save_to_path(tmp_path)
    expected = algorithm.sample()
    resumed = config().build_algo()
    resumed.restore_from_path(tmp_path)
    for found, wanted in zip(resumed.sample(), expected, strict=True):
        np.testing.assert_array_equal(found.observations, wanted.observations)
    resumed.stop()


def test_every_part_of_a_dict_has_its_last_frames(tmp_path):
    algorithm = config(Parts).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    expected = FrameStackObservation(Parts(), 3).observation_space
    assert expected["parity"] == MultiDiscrete([2, 2, 2])
    for policy in (algorithm.get_policy(), load_policy(tmp_path)):
        assert policy.observation_space == expected
        assert policy.predict(expected.sample())[0] in Discrete(2)
    algorithm.stop()


@pytest.mark.parametrize("env", ["Counter", "Parts"])
def test_a_run_is_evaluated_recorded_and_filmed_with_its_frames(env, tmp_path):
    run = tmp_path / "run"
    name = f"{Path(__file__).stem}:{env}"
    plugrad("train", "ppo", name, *TINY, "--env_runners.frame_stack=2", "--quiet", "--out", run,
            "--stop-timesteps=8", code=0)  # fmt: skip
    plugrad("eval", run, "--episodes=1", "--trust", code=0)
    plugrad("record", run, "--episodes=1", "--out", tmp_path / "data", "--trust", code=0)
    assert list((tmp_path / "data").iterdir())
    needs.extra("PIL.Image")
    plugrad("video", run, "--trust", code=0)
    assert list(run.rglob("*.gif"))


def test_one_frame_is_the_environment_itself():
    algorithm = config(frame_stack=1).build_algo()
    assert algorithm.config.observation_space == Counter.observation_space
    algorithm.stop()


def test_the_setting_is_written_and_checked():
    chosen = config("CartPole-v1", 4)
    assert PPOConfig.from_toml(chosen.to_toml()) == chosen
    with pytest.raises(ConfigError, match="frame_stack"):
        config(frame_stack=0)
    with pytest.raises(ConfigError, match=r'frame_stack=4 needs vectorization_mode="sync"'):
        chosen.env_runners(vectorization_mode="vector_entry_point").build_algo()
