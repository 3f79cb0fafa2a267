"""The environment door: every way to name an environment, and errors that say what to type."""

import subprocess
import sys

import counting
import gymnasium as gym
import needs
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.vector import AutoresetMode
from sampling import Sampling, make_runner

from plugrad.errors import ConfigError
from plugrad.policy.actions import action_converter
from plugrad.policy.observations import stored_space
from plugrad.sampling.environments import make_env
from plugrad.sampling.vector_envs import SyncEnvs
from plugrad.sampling.vectorization import get_env_spaces, make_vector_envs
from plugrad_ppo import PPOConfig


class Outer:
    class Nested(counting.CountingEnv):
        pass


class Observing(counting.CountingEnv):
    """Observes whatever space it is given."""

    def __init__(self, space):
        super().__init__()
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}


@pytest.mark.parametrize(
    "env",
    [
        "CartPole-v1",
        "gymnasium:CartPole-v1",
        "gymnasium.envs.classic_control:CartPoleEnv",
        CartPoleEnv,
        lambda **settings: gym.make("CartPole-v1", **settings),
    ],
)
def test_an_environment_can_be_named_in_every_way(env):
    made = make_env(env, {"sutton_barto_reward": True})
    assert isinstance(made.unwrapped, CartPoleEnv)
    made.reset(seed=0)
    assert made.step(1)[1] == 0  # Sutton and Barto's reward, so the arguments arrived
    assert (made.spec is None) == (env is CartPoleEnv or env == "gymnasium.envs.classic_control:CartPoleEnv")


def test_a_class_within_a_class_can_be_named():
    assert sys.modules[__name__].Outer.Nested is type(make_env(f"{__name__}:Outer.Nested").unwrapped)


@pytest.mark.parametrize(
    ("env", "env_config", "words"),
    [
        ("CartPol-v1", {}, r"no environment 'CartPol-v1'.*Did you mean 'CartPole-v1'\?"),
        ("CartPole-v7", {}, r"no environment 'CartPole-v7'.*Did you mean 'CartPole-v1'\?"),
        ("qqq", {}, "no environment 'qqq'.*Is the package that registers it imported"),
        ("gymnasium:CartPol-v1", {}, r"Did you mean 'CartPole-v1'\?"),
        (
            "no_such_package.envs:Env-v0",
            {},
            "'no_such_package.envs:Env-v0' cannot be imported.*Is it installed",
        ),
        ("./myenvs.py:Simple", {}, r"'./myenvs.py' is not the name of a module; write .*\"myenvs:Name\""),
        (".myenvs:Simple", {}, "'.myenvs' is not the name of a module"),
        (":Simple", {}, "'' is not the name of a module"),
        ("Arcade/Pong-v5", {}, "No imported package registers ids Arcade/.*'package:Arcade/Pong-v5'"),
        (
            "gymnasium.envs.classic_control:CartPolEnv",
            {},
            r"has no 'CartPolEnv'.*Did you mean 'CartPoleEnv'\?",
        ),
        (
            "CartPole-v1",
            {"gravitas": 1},
            r"'CartPole-v1' with env_config=\{'gravitas': 1\}.*unexpected keyword",
        ),
        (
            CartPoleEnv,
            {"gravitas": 1},
            r"CartPoleEnv with env_config.*unexpected keyword argument 'gravitas'",
        ),
        (None, {}, r"env=None.*config.environment\('CartPole-v1'\)"),
        (dict, {}, "dict made a dict, not a gymnasium.Env"),
    ],
)
def test_what_is_no_environment_is_an_error_that_says_what_to_type(env, env_config, words):
    with pytest.raises(ConfigError, match=words):
        make_env(env, env_config)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("Pong-v5", "Type 'ALE/Pong-v5'"),
        ("PongNoFrameskip-v4", "'PongNoFrameskip-v4'"),
        ("Pnog-v5", "no environment 'Pnog-v5'"),
    ],
)
def test_an_atari_game_by_another_name_is_an_error_that_says_its_name(env, words):
    """In a process of its own: the ids stay registered once somebody has asked."""
    needs.extra("ale_py")
    code = f"from plugrad.sampling.environments import make_env; make_env({env!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "ConfigError" in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("space", "length"),
    [
        (Discrete(5), 5),
        (Discrete(5, start=2), 5),
        (MultiDiscrete([2, 3]), 5),
        (MultiBinary(4), 4),
        (Dict({"a": Discrete(3), "b": Box(-1, 1, (2, 2))}), 7),
        (Tuple((Box(0, 1, (3,)), Discrete(2))), 5),
    ],
)
def test_other_observations_than_boxes_are_flattened(space, length):
    env = make_env(Observing, {"space": space})
    observation, _ = env.reset(seed=0)
    space.seed(0)
    np.testing.assert_array_equal(observation, gym.spaces.flatten(space, space.sample()))
    assert observation.shape == (length,)
    assert stored_space(env.observation_space).shape == (length,)
    assert stored_space(env.observation_space).dtype == np.float32


def test_images_stay_bytes_and_boxes_keep_their_shape():
    image = Box(0, 255, (8, 8, 3), np.uint8)
    assert make_env(Observing, {"space": image}).observation_space == image
    assert stored_space(image) == image
    assert stored_space(image, normalized=True) == Box(-np.inf, np.inf, (8, 8, 3), np.float32)


def test_bounds_beyond_float32_are_no_bounds():
    wide = Box(np.array([-np.inf, -1e300, 0]), np.array([np.inf, 1e300, 2]), dtype=np.float64)
    expected = Box(np.float32([-np.inf, -np.inf, 0]), np.float32([np.inf, np.inf, 2]), dtype=np.float32)
    assert stored_space(wide) == expected


def test_what_cannot_be_an_array_is_refused():
    with pytest.raises(ConfigError, match="Text space are not arrays"):
        stored_space(Text(3))


def test_reading_the_spaces_leaves_no_environment_open():
    closed = []

    class Closing(counting.CountingEnv):
        def close(self):
            closed.append(self)

    get_env_spaces(Sampling(env=Closing))
    assert len(closed) == 1


def test_spaces_are_those_of_what_is_stored():
    box, normalized = Box(0, np.inf, (3,), np.float32), Box(-np.inf, np.inf, (3,), np.float32)
    assert get_env_spaces(Sampling(env=counting.CountingEnv)).actions == Discrete(3)
    assert make_runner(env=counting.CountingEnv).observation_space == box
    assert make_runner(env=counting.CountingEnv, normalize_observations=True).observation_space == normalized


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (Discrete(3), [0, 2], [0, 2]),
        (Discrete(3, start=5), [0, 2], [5, 7]),
        (MultiDiscrete([2, 2], start=[1, -1]), [[0, 1]], [[1, 0]]),
        (Box(-1, 1, (2,)), [[-3, 0.5]], [[-1, 0.5]]),
        (Box(-np.inf, np.inf, (1,)), [[1e9]], [[1e9]]),
    ],
)
def test_actions_are_made_legal(space, actions, expected):
    converted = action_converter(space)(np.array(actions))
    np.testing.assert_array_equal(converted, expected)
    assert converted.dtype == space.dtype


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_vector_environments_step_together(mode):
    envs = make_vector_envs(Sampling(env="CartPole-v1", vectorization_mode=mode))
    observations, _ = envs.reset((0,))
    assert observations.shape == (3, 4)
    assert isinstance(envs, SyncEnvs) == envs.resets_in_same_step == (mode == "sync")
    envs.close()


class Disabled(counting.CountingVectorEnv):
    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012


@pytest.mark.parametrize(
    ("env", "mode", "words"),
    [
        ("Pendulum-v1", "vector_entry_point", "doesn't have a vector entry point"),
        (CartPoleEnv, "vector_entry_point", "CartPoleEnv' is a single environment"),
        ("gymnasium.envs.classic_control:CartPoleEnv", "vector_entry_point", "is a single environment"),
        ("plugrad-tests/Disabled-v0", "vector_entry_point", 'take vectorization_mode="sync"'),
        (lambda: CartPoleEnv(), "vector_entry_point", "<lambda>.*unexpected keyword argument 'num_envs'"),
        ("CartPole-v1", "synk", r"vectorization_mode must be one of 'sync', .*Did you mean 'sync'\?"),
    ],
)
def test_what_cannot_be_vectorised_is_an_error(env, mode, words):
    if "plugrad-tests/Disabled-v0" not in gym.registry:
        gym.register("plugrad-tests/Disabled-v0", vector_entry_point=Disabled)
    with pytest.raises(ConfigError, match=words):
        make_vector_envs(Sampling(env=env, vectorization_mode=mode))


def test_there_is_at_least_one_environment():
    with pytest.raises(ConfigError, match="num_envs_per_env_runner must be a whole number >= 1"):
        make_runner(num_envs_per_env_runner=0)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("CartPole-v1", 475.0),
        ("CartPole-v0", 195.0),
        ("CartPole", 475.0),  # Gymnasium makes the newest version of it
        ("gymnasium:CartPole-v1", 475.0),
        ("gymnasium.envs.classic_control:CartPole-v0", 195.0),
        ("gymnasium.envs.classic_control:CartPoleEnv", None),
        (CartPoleEnv, None),
        ("Pendulum-v1", None),
    ],
)
def test_the_reward_threshold_is_found_by_every_form_of_an_id(env, expected):
    algorithm = (
        PPOConfig()
        .environment(env)
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .build_algo()
    )
    assert algorithm.env_spec_reward_threshold == expected


@pytest.mark.parametrize(
    ("env", "package", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("HalfCheetah-v5", "mujoco", "mujoco")],
)
def test_an_environment_whose_package_is_missing_names_the_extra(env, package, extra, monkeypatch):
    for name in [each for each in sys.modules if each.startswith((f"gymnasium.envs.{extra}", package))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(ConfigError, match=rf'cannot make .*{env}.* Here: pip install "plugrad\[{extra}\]"'):
        make_env(env)
