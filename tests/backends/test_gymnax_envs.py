"""Environments with gymnax's interface are stepped as one program, and train."""

from importlib import import_module
from typing import Any, NamedTuple

import needs
import numpy as np
import pytest

from plugrad.errors import ConfigError
from plugrad_ppo import PPOConfig


class Params(NamedTuple):
    max_steps_in_episode: int = 4
    goal: int = 3

    def replace(self, **changes: Any) -> "Params":
        return self._replace(**changes)


class Space(NamedTuple):
    """As gymnax has it: a Box, or with `n` a Discrete."""

    shape: tuple[int, ...]
    dtype: Any = np.float32
    low: Any = 0.0
    high: Any = np.array([10.0, 10.0], np.float32)


class Choices(NamedTuple):
    n: int
    shape: tuple[int, ...] = ()
    dtype: Any = np.int32


class Corridor:
    """From a random cell, 0 or 1, an action walks 0 to 2 cells; the goal ends an episode, and so does its last step."""

    default_params = Params()

    def action_space(self, params: Params) -> Any:
        return Choices(3)

    def observation_space(self, params: Params) -> Any:
        return Space((2,))

    def reset_env(self, key: Any, params: Params) -> Any:
        jax = import_module("jax")
        state = {"cell": jax.random.randint(key, (), 0, 2), "time": 0}
        return self.seen(state), state

    def step_env(self, key: Any, state: Any, action: Any, params: Params) -> Any:
        state = {"cell": state["cell"] + action, "time": state["time"] + 1}
        ended = (state["cell"] >= params.goal) | (state["time"] >= params.max_steps_in_episode)
        return self.seen(state), state, 1.0 * (action == 0), ended, {}

    def seen(self, state: Any) -> Any:
        jnp = import_module("jax.numpy")
        return jnp.stack([jnp.asarray(state[name], jnp.float32) for name in ("cell", "time")])


@pytest.fixture
def make() -> Any:
    needs.backend("jax")
    return import_module("plugrad_jax.gymnax_envs").GymnaxVectorEnv


def test_each_copy_goes_its_way(make):
    envs, rng = make(num_envs=5, env=Corridor()), np.random.default_rng(0)
    seen = np.asarray(envs.reset(seed=3)[0])
    np.testing.assert_array_equal(np.asarray(make(num_envs=5, env=Corridor()).reset(seed=3)[0]), seen)
    assert {*seen[:, 0]} == {0.0, 1.0}
    kinds = set()
    for _ in range(30):
        actions = rng.integers(0, 3, 5)
        after, rewards, terminated, truncated = map(np.asarray, envs.step(actions)[:4])
        cell, time = seen[:, 0] + actions, seen[:, 1] + 1
        np.testing.assert_array_equal(rewards, 1.0 * (actions == 0))
        np.testing.assert_array_equal(truncated, time >= 4)
        np.testing.assert_array_equal(terminated, (cell >= 3) & (time < 4))
        ended = terminated | truncated
        np.testing.assert_array_equal(after[~ended], np.stack([cell, time], 1)[~ended])
        assert np.all(after[ended, 1] == 0)
        kinds |= {(bool(a), bool(b)) for a, b in zip(terminated, truncated, strict=True)}
        seen = after
    assert len(kinds) == 3


def test_the_last_observation_is_told(make):
    envs = make(num_envs=2, env=Corridor(), env_params={"max_steps_in_episode": 1})
    before = np.asarray(envs.reset(seed=0)[0])
    after, _, _, truncated, infos = envs.step(np.array([1, 0]))
    assert np.all(truncated)
    np.testing.assert_array_equal(infos["final_obs"], before + np.array([[1, 1], [0, 1]]))
    assert np.all(np.asarray(after)[:, 1] == 0)


def test_ppo_learns_to_stand(make):
    config = PPOConfig().environment(make, env_config={"env": Corridor()}).framework("jax").debugging(seed=0)
    config = config.env_runners(vectorization_mode="tensors", num_envs_per_env_runner=16)
    config = config.training(train_batch_size=16 * 8, minibatch_size=64, num_epochs=8, lr=3e-2)
    algorithm = config.rl_module(model_config={"fcnet_hiddens": [8]}).build_algo()
    returns = [algorithm.train()["env_runners/episode_return_mean"] for _ in range(10)]
    assert returns[-1] > 3.5 > 1.5 > returns[0]


def test_what_is_no_environment_of_gymnax_says_so(make):
    with pytest.raises(
        ConfigError, match=r"gymnax is not installed: pip install gymnax|gymnax has no environment"
    ):
        make(num_envs=2, env="Corridor-v9")

    class Odd(Corridor):
        def observation_space(self, params):
            return object()

    with pytest.raises(ConfigError, match="observations of object: expected a Box or Discrete of gymnax"):
        make(num_envs=2, env=Odd())
