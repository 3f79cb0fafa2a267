"""`env_wrappers` and `time_limit`: what settings put around each environment, wherever a policy acts."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from sampling import balance, make_runner
from tiny_runs import TINY, plugrad, tiny_run

from plugrad import load_policy
from plugrad.algorithm import Algorithm
from plugrad.cli.run_directory import RunDirectory
from plugrad.errors import ConfigError, EnvContractError
from plugrad.testing import algorithm_suite
from plugrad.testing.tiny_task import RightOrLeft, tiny_algorithm_config
from plugrad_ppo import PPOConfig

HERE = Path(__file__).stem


class Scaled(gym.ObservationWrapper):
    """Multiplies observations."""

    def __init__(self, env, factor=2.0):
        super().__init__(env)
        self.factor = factor
        self.observation_space = Box(-np.inf, np.inf, env.observation_space.shape, np.float32)

    def observation(self, observation):
        return np.float32(observation * self.factor)


class Shifted(Scaled):
    """Adds 1."""

    def observation(self, observation):
        return np.float32(observation + 1)


class Old(gym.Wrapper):
    """Returns what environments of older Gym returned."""

    def step(self, action):
        return self.env.step(action)[:4]


class Careless(gym.Wrapper):
    """Raises an error of its own."""

    def step(self, action):
        return [][0]


class Narrow(gym.ObservationWrapper):
    """Returns observations that are not of its space."""

    def observation(self, observation):
        return observation[:2]


def no_environment(env):
    return 3


def stand_still(observations):
    return {"actions": np.zeros(len(observations), np.int64)}


def config(**env_runners: Any) -> PPOConfig:
    return (
        PPOConfig()
        .framework("numpy")
        .environment("CartPole-v1")
        .env_runners(**{"num_envs_per_env_runner": 2, **env_runners})
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .training(train_batch_size=20, minibatch_size=None, num_epochs=1)
        .debugging(seed=0)
    )


def first_observations(*wrappers: Any) -> np.ndarray:
    chunks = make_runner(balance, env="CartPole-v1", env_wrappers=wrappers).sample(1)
    return np.array([chunk.observations[0] for chunk in chunks])


def test_wrappers_are_put_around_each_environment_and_the_first_one_is_next_to_it():
    plain = first_observations()
    np.testing.assert_array_equal(first_observations(Scaled), 2 * plain)
    np.testing.assert_array_equal(first_observations(f"{HERE}:Scaled"), 2 * plain)
    np.testing.assert_array_equal(first_observations([Scaled, {"factor": 4.0}]), 4 * plain)
    np.testing.assert_array_equal(first_observations(Scaled, Shifted), np.float32(2 * plain + 1))
    np.testing.assert_array_equal(first_observations(Shifted, Scaled), 2 * np.float32(plain + 1))


def test_the_space_of_the_network_is_that_of_the_wrapped_environment(tmp_path):
    algorithm = config(env_wrappers=["gymnasium.wrappers:TimeAwareObservation"]).build_algo()
    algorithm.train()
    assert algorithm.get_policy().observation_space.shape == (5,)
    algorithm.save_to_path(tmp_path)
    algorithm.stop()
    assert load_policy(tmp_path).observation_space.shape == (5,)
    opened = Algorithm.from_checkpoint(tmp_path)  # Gymnasium's own wrappers need no word
    assert opened.evaluate(1)["episode_len_mean"] > 0
    assert opened.record(1).episodes[0].observations.shape[1:] == (5,)
    opened.stop()


def test_a_checkpoint_takes_wrappers_that_are_given_and_imports_none(tmp_path):
    algorithm = config(env_wrappers=[Scaled]).build_algo()
    algorithm.save_to_path(tmp_path)
    algorithm.stop()
    with pytest.raises(
        ConfigError, match=rf"env_wrappers .* is {HERE}:Scaled.*give env_wrappers= to Algorithm"
    ):
        Algorithm.from_checkpoint(tmp_path)
    load_policy(tmp_path)
    opened = Algorithm.from_checkpoint(tmp_path, env_wrappers=[Scaled])
    assert opened.config.env_wrappers == [f"{HERE}:Scaled"]
    opened.stop()


def test_settings_are_written_and_read():
    chosen = config(
        env_wrappers=[Scaled, ["gymnasium.wrappers:ClipReward", {"max_reward": 0.5}]], time_limit=7
    )
    assert chosen.env_wrappers[0] == f"{HERE}:Scaled"
    assert PPOConfig.from_toml(chosen.to_toml()) == PPOConfig.from_json(chosen.to_json()) == chosen
    assert pickle.loads(pickle.dumps(chosen)) == chosen


@pytest.mark.parametrize(
    "value", ["gymnasium.wrappers:ClipReward", [3], ["ClipReward"], [["a:B", 3]], [["a:B"]]]
)
def test_what_names_no_wrapper_is_refused_where_it_is_set(value):
    with pytest.raises(ConfigError, match="env_wrappers"):
        config(env_wrappers=value)


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        ("no_such_module:W", "env_wrappers: 'no_such_module:W' cannot be imported"),
        ("gymnasium.wrappers:ClipRewards", r"has no 'ClipRewards'. Did you mean 'ClipReward'\?"),
        ([Scaled, {"factr": 2}], r"Scaled cannot be put around 'CartPole-v1' with \{'factr': 2\}: TypeError"),
        ("gymnasium.wrappers:AtariPreprocessing", "cannot be put around 'CartPole-v1': "),
        (no_environment, "no_environment made a int of 'CartPole-v1'; expected: a gymnasium.Env"),
    ],
)
def test_a_wrapper_that_cannot_be_made_is_an_error_that_names_it_and_the_environment(wrapper, words):
    with pytest.raises(ConfigError, match=words):
        make_runner(balance, env="CartPole-v1", env_wrappers=[wrapper])


@pytest.mark.parametrize("others", [{}, {"frame_stack": 2}, {"time_limit": 9}])
@pytest.mark.parametrize(
    ("wrappers", "words"),
    [
        (
            [Old],
            r"environment 0 of 'CartPole-v1': .*expected 5, got 4|returned a tuple of 4, as step\(\) of older Gym",
        ),
        (
            [Old, ["gymnasium.wrappers:ClipReward", {"min_reward": 0.0}]],
            r"environment 0 of 'CartPole-v1': .*expected 5, got 4",
        ),
        ([Narrow], r"environment 0 of 'CartPole-v1'"),
    ],
)
def test_mistakes_below_other_wrappers_name_the_environment_what_was_found_and_expected(
    wrappers, words, others
):
    with pytest.raises(EnvContractError, match=words) as caught:
        make_runner(stand_still, env="CartPole-v1", env_wrappers=wrappers, **others).sample(3)
    assert "returns (observation" in str(caught.value) or "expected: " in str(caught.value)


def test_an_error_of_a_wrappers_own_code_keeps_its_class_and_names_the_environment():
    with pytest.raises(IndexError) as caught:
        make_runner(balance, env="CartPole-v1", env_wrappers=[Careless]).sample(2)
    assert "raised by step() of environment 0 of 'CartPole-v1'" in caught.value.__notes__


def test_a_time_limit_truncates_below_the_wrappers():
    (chunk, *_) = make_runner(balance, env="CartPole-v1", time_limit=7).sample(9)
    assert len(chunk) == 7
    assert chunk.truncated
    assert not chunk.terminated
    aware = ["gymnasium.wrappers:TimeAwareObservation"]
    (chunk, *_) = make_runner(balance, env="CartPole-v1", time_limit=4, env_wrappers=aware).sample(9)
    np.testing.assert_array_equal(chunk.observations[:, -1], np.arange(5))


def test_a_limit_that_comes_after_the_registered_one_says_what_to_type():
    with pytest.raises(ConfigError, match=r"limit of 500 steps.*env_config=\{\"max_episode_steps\": 900\}"):
        make_runner(balance, env="CartPole-v1", time_limit=900)
    make_runner(balance, env="CartPole-v1", time_limit=900, env_config={"max_episode_steps": 900}).sample(1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"env_wrappers": [Scaled]}, "env_wrappers needs"),
        ({"time_limit": 5}, "time_limit=5 needs"),
        ({"frame_stack": 2}, "frame_stack=2 needs"),
        ({"atari": True}, "atari=True needs"),
    ],
)
def test_vectorised_environments_cannot_be_wrapped_and_the_error_says_what_to_type(setting, words):
    with pytest.raises(ConfigError, match=words + r' vectorization_mode="sync" or "async"'):
        make_runner(balance, env="CartPole-v1", vectorization_mode="vector_entry_point", **setting)


def test_a_wrapper_in_the_current_folder_is_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wraps_here.py").write_text("from gymnasium import Wrapper\nclass Mine(Wrapper):\n    pass\n")
    typed = '--env_runners.env_wrappers=["./wraps_here.py:Mine"]'
    plugrad("train", "ppo", "CartPole-v1", *TINY, typed, "--quiet", "--out=run", "--stop-timesteps=8", code=0)
    assert '"wraps_here:Mine"' in (tmp_path / "run/config.toml").read_text()
    sys.modules.pop("wraps_here")
    assert "which is not called because a file names it" in plugrad("eval", "run", "--episodes=1").stderr
    plugrad("eval", "run", "--episodes=1", "--trust", code=0)
    sys.modules.pop("wraps_here", None)


def test_the_arguments_of_a_typed_wrapper_are_kept_as_they_were_typed(tmp_path):
    typed = f'--env_runners.env_wrappers=[["{HERE}:Scaled", {{factor = 0.12345678901}}]]'
    run = tiny_run(tmp_path / "run", "CartPole-v1", typed, "--stop-timesteps=8")
    assert RunDirectory(run).read_config().env_wrappers == [[f"{HERE}:Scaled", {"factor": 0.12345678901}]]


def test_a_wrapper_of_the_main_module_reaches_other_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import gymnasium as gym\n"
        "from plugrad_ppo import PPOConfig\n"
        "class Mine(gym.Wrapper):\n"
        "    pass\n"
        "if __name__ == '__main__':\n"
        "    config = PPOConfig().framework('numpy').environment('CartPole-v1').debugging(seed=0)\n"
        "    config = config.env_runners(num_env_runners=1, env_runner_backend='process', env_wrappers=[Mine])\n"
        "    algorithm = config.training(train_batch_size=16).build_algo()\n"
        "    print(len(algorithm.sample()))\n"
        "    algorithm.stop()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 0


def test_an_algorithm_with_a_wrapper_of_its_own_passes_the_authors_test_of_checkpoints(tmp_path):
    """No checkpoint brings the wrapper's code, so the suite does."""
    config = tiny_algorithm_config("ppo", "numpy", RightOrLeft, lambda: tmp_path, compile="none")
    config = config.env_runners(env_wrappers=[Shifted])
    algorithm_suite.test_a_checkpoint_goes_on_exactly("numpy", config, tmp_path / "saved")
    with pytest.raises(ConfigError, match="env_wrappers"):
        Algorithm.from_checkpoint(tmp_path / "saved", env=RightOrLeft)
