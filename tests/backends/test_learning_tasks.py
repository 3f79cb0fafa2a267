"""What only some networks can learn: a task of memory, and one of seeing, small enough for a test."""

import importlib.util
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from plugrad_ppo import PPOConfig

ONE_BACKEND = "torch" if importlib.util.find_spec("torch") else "tf2"
CATCH = Path(__file__).parents[2] / "benchmarks/catch.py"


class Recall(gym.Env):
    """The first of four observations is 1 or -1, the others are 0; the last action must say which it was."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.steps = int(self.np_random.integers(2)), 0
        return np.float32([2 * self.cue - 1, 0.0]), {}

    def step(self, action):
        self.steps += 1
        done = self.steps == 4
        reward = (1.0 if int(action) == self.cue else -1.0) if done else 0.0
        return np.float32([0.0, self.steps / 4]), reward, done, False, {}


def make_catch(**kwargs) -> gym.Env:
    """Catch of the benchmarks, which are no package."""
    spec = importlib.util.spec_from_file_location("catch", CATCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Catch(**kwargs)


def best_mean(config: PPOConfig, goal: float, iterations: int) -> float:
    """The mean return of the last 20 episodes after so many iterations, or as soon as the goal is reached."""
    algorithm = config.debugging(seed=0).build_algo()
    mean = float("-inf")
    for _ in range(iterations):
        mean = algorithm.train().get("env_runners/episode_return_mean", mean)
        if mean >= goal:
            break
    algorithm.stop()
    return float(mean)


def recall(backend: str, **model) -> PPOConfig:
    return (
        PPOConfig()
        .environment(Recall)
        .framework(backend)
        .rl_module(model_config={"fcnet_hiddens": [16], "vf_share_layers": True, **model})
        .training(train_batch_size=512, minibatch_size=128, num_epochs=8, lr=1e-2, entropy_coeff=0.01)
    )


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_what_was_seen_is_remembered(backend, memory):
    model = {f"use_{memory}": True, f"{memory}_cell_size": 16, "max_seq_len": 4}
    assert best_mean(recall(backend, **model), 0.95, 30) >= 0.95


def test_the_last_frames_are_a_memory():
    config = recall(ONE_BACKEND).env_runners(frame_stack=4)
    assert best_mean(config, 0.95, 30) >= 0.95


def test_without_a_memory_it_is_a_guess():
    assert best_mean(recall(ONE_BACKEND), 0.95, 10) < 0.8


def test_what_is_seen_in_images_is_met(backend):
    config = (
        PPOConfig()
        .environment(make_catch, env_config={"board": 5})
        .framework(backend)
        .rl_module(model_config={"conv_filters": [[8, 4, 4]], "fcnet_hiddens": [32], "vf_share_layers": True})
        .training(train_batch_size=512, minibatch_size=128, num_epochs=6, lr=3e-3, entropy_coeff=0.01)
    )
    assert best_mean(config, 0.9, 40) >= 0.9


def test_acting_at_random_in_catch_misses_four_of_five():
    env = make_catch()
    env.reset(seed=0)
    rng, rewards = np.random.default_rng(0), []
    for _ in range(1000):
        env.reset()
        done = False
        while not done:
            observation, reward, done, *_ = env.step(rng.integers(3))
        rewards.append(reward)
    assert observation.shape == (40, 40, 1)
    assert observation in env.observation_space
    assert set(rewards) == {-1.0, 1.0}
    assert np.mean(rewards) == pytest.approx(-0.6, abs=0.1)
