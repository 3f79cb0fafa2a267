"""Making environments: whose error it is, ids of packages in worker processes, and modes that have no name."""

import sys
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from sampling import make_runner
from test_array_programs import NextStep

from plugrad.errors import ConfigError
from plugrad.sampling.environments import make_env
from plugrad.sampling.native_envs import make_native_vector_env


class SimulatorError(RuntimeError):
    """An error of somebody's simulator."""


class Fails(gym.Env):
    """Its constructor raises `error`."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    error: ClassVar[Any] = None

    def __init__(self, size=1):
        raise type(self).error


gym.register("plugrad-tests/Fails-v0", entry_point=Fails)


def fails(**settings):
    return Fails(**settings)


ERRORS = [
    TypeError("unsupported operand"),
    ImportError("no driver"),
    SimulatorError("no port"),
    ValueError("size"),
]


@pytest.mark.parametrize("env", [Fails, fails, "plugrad-tests/Fails-v0"])
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_of_a_constructor_keeps_its_class_and_names_the_environment(env, error, monkeypatch):
    monkeypatch.setattr(Fails, "error", error)
    error.__notes__ = []
    with pytest.raises(type(error), match=str(error)) as caught:
        make_env(env, {"size": 3})
    assert type(caught.value) is type(error)
    (note,) = caught.value.__notes__
    assert note.startswith("raised while environment ")
    assert ("plugrad-tests/Fails-v0" if isinstance(env, str) else env.__qualname__) in note


class FailsInWorker(Fails):
    error = TypeError("unsupported operand")


def test_an_error_of_a_constructor_in_a_worker_process_does_so_too():
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        make_runner(env=FailsInWorker, vectorization_mode="async", num_envs_per_env_runner=1)
    assert any(
        note == "raised while environment 'test_making_environments:FailsInWorker' was made"
        for note in caught.value.__notes__
    )


@pytest.mark.parametrize("env", [Fails, fails, "plugrad-tests/Fails-v0"])
def test_a_setting_that_a_constructor_does_not_take_is_still_a_config_error(env, monkeypatch):
    monkeypatch.setattr(Fails, "error", SimulatorError())
    with pytest.raises(
        ConfigError, match=r"cannot make the environment .* with env_config=\{'seize': 3\}.*'seize'"
    ):
        make_env(env, {"seize": 3})


PACKAGE = """
import gymnasium as gym
gym.register("plugrad-of-package/Pole-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
"""


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_workers_of_a_packages_id_register_it_once(num_env_runners, tmp_path, monkeypatch, capfd):
    from plugrad_ppo import PPOConfig

    (tmp_path / "package_of_poles.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    config = PPOConfig().framework("numpy").environment("package_of_poles:plugrad-of-package/Pole-v0")
    config = config.env_runners(
        num_env_runners=num_env_runners,
        env_runner_backend="process",
        vectorization_mode="async",
        num_envs_per_env_runner=2,
    )
    config = config.rl_module(model_config={"fcnet_hiddens": [1]})
    algorithm = config.training(train_batch_size=8, minibatch_size=8, num_epochs=1).build_algo()
    assert algorithm.train()["env_runners/num_env_steps_sampled"] == 8
    algorithm.stop()
    assert "Overriding environment" not in "".join(capfd.readouterr())
    sys.modules.pop("package_of_poles")


LATE = """
import gymnasium as gym
def register_envs():
    gym.register("plugrad-late/Tidal-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
"""


def test_a_package_that_registers_by_a_function_is_told_apart_from_one_that_is_not_imported(
    tmp_path, monkeypatch
):
    (tmp_path / "late_package.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        make_env("late_package:plugrad-late/Tidal-v0")
    message = str(caught.value)
    assert "'late_package' was imported, and registers no id 'plugrad-late/Tidal-v0' when it is" in message
    assert "Here: call late_package.register_envs() there." in message
    assert "'my_envs:plugrad-late/Tidal-v0'" in message
    assert "is the package that registers it imported" not in message.lower()


class Base(NextStep):
    pass


@pytest.mark.parametrize("is_functional", [True, False])
def test_the_reset_rule_of_gymnasiums_functional_environments_is_known(is_functional, monkeypatch):
    base = (
        Base
        if not is_functional
        else type(
            "FunctionalVectorEnv", (NextStep,), {"__module__": "gymnasium.envs.functional_env_of_arrays"}
        )
    )
    own = type("Own", (base,), {"metadata": {"render_modes": ["rgb_array"]}})
    env_id = f"plugrad-tests/Functional{is_functional}-v0"
    gym.register(env_id, entry_point=Fails, vector_entry_point=own)
    try:
        if not is_functional:
            with pytest.raises(ConfigError, match="resets by autoreset_mode=None"):
                make_native_vector_env(env_id, {}, 2)
            return
        envs = make_native_vector_env(env_id, {}, 2)
        assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
        assert "autoreset_mode" not in own.metadata
    finally:
        del gym.registry[env_id]
