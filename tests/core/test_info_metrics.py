"""Numbers of `info` become metrics of episodes: in every way of sampling, in evaluation, and over a resume."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from many_agents import Pair
from test_array_programs import Arrays, runner_of

from plugrad.errors import ConfigError, EnvContractError
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

METRICS = {"force": "mean", "success": "last", "pushes": "sum", "low": "min", "high": "max"}
EXPECTED = {"force": 2.5, "success": 1.0, "pushes": 2.0, "low": 1.0, "high": 4.0}
"""Of an episode of four steps whose force is its step."""


def info_of(step):
    """`success` is only in the info of the last step, `pushes` in every second one."""
    found = {"force": float(step), "low": np.float32(step), "high": np.array([step]), "words": "left"}
    found |= {"pushes": True} if step % 2 else {}
    return found | ({"success": True} if step == 4 else {})


class Robot(gym.Env):
    """Episodes of four steps."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {"force": 99.0, "success": False}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 4, False, info_of(self.t)


class AddsForce(gym.Wrapper):
    """What a user's wrapper logs goes into info."""

    def step(self, action):
        *answer, info = self.env.step(action)
        return *answer, {**info, "doubled": 2 * info["force"]}


def build(env=Robot, algorithm=PPOConfig, metrics=METRICS, learns=None, **settings):
    config = algorithm().framework("numpy").environment(env).rl_module(model_config={"fcnet_hiddens": [4]})
    settings = {"num_envs_per_env_runner": 2, "env_runner_backend": "process", **settings}
    training = learns or {"train_batch_size": 20, "minibatch_size": 4, "num_epochs": 1}
    config = config.env_runners(info_metrics=metrics, **settings).training(**training)
    return config.debugging(seed=3).build_algo()


MODES = [
    {},
    {"vectorization_mode": "async"},
    {"num_env_runners": 2},
    {"num_env_runners": 1, "vectorization_mode": "async", "num_envs_per_env_runner": 1},
]


@pytest.mark.parametrize("settings", MODES)
def test_numbers_of_info_are_metrics_of_training_and_evaluation(settings):
    algorithm = build(env_wrappers=[AddsForce], metrics={**METRICS, "doubled": "mean"}, **settings)
    try:
        results = algorithm.train()
        evaluated = algorithm.evaluate(3)
    finally:
        algorithm.stop()
    for name, value in {**EXPECTED, "doubled": 5.0}.items():
        assert results[f"env_runners/info/{name}"] == value
        assert evaluated[f"info/{name}"] == value


def test_names_alone_are_means_and_off_policy_sampling_has_them():
    dqn = {"train_batch_size": 8, "minibatch_size": 8, "num_steps_sampled_before_learning_starts": 8}
    algorithm = build(
        algorithm=DQNConfig, metrics=["force", "success"], learns=dqn, rollout_fragment_length=3
    )
    assert algorithm.config.info_metrics == {"force": "mean", "success": "mean"}
    for _ in range(4):
        results = algorithm.train()
    algorithm.stop()
    assert (results["env_runners/info/force"], results["env_runners/info/success"]) == (2.5, 1.0)


def test_a_resumed_run_goes_on_in_the_middle_of_an_episode(tmp_path):
    straight = build(rollout_fragment_length=3)
    straight.train()  # three of four steps
    straight.save_to_path(tmp_path / "run")
    resumed = build(rollout_fragment_length=3)
    resumed.restore_from_path(tmp_path / "run")
    found, again = straight.train(), resumed.train()
    assert found["env_runners/info/force"] == again["env_runners/info/force"] == 2.5
    names = [name for name in found if name.startswith("env_runners/")]
    assert {name: found[name] for name in names} == {name: again[name] for name in names}


class ArrayInfos(Arrays):
    """A program over arrays: its infos are arrays of all environments; `success` only where an episode ended."""

    def step(self, actions):
        *answer, infos = super().step(actions)
        steps = np.where(self.ended, 3 + np.arange(self.num_envs), self.t)
        return *answer, {**infos, "force": steps, "success": np.ones(self.num_envs), "_success": self.ended}


class ArrayInfosNextStep(ArrayInfos):
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012


class FinalInfos(ArrayInfos):
    """As Gymnasium's vector environments do: where an episode ended, infos are those of the reset."""

    def step(self, actions):
        *answer, infos = super().step(actions)
        final = {"force": infos["force"].copy(), "_force": self.ended, "success": np.ones(self.num_envs)}
        return *answer, {**infos, "force": np.where(self.ended, 99, infos["force"]), "final_info": final}


@pytest.mark.parametrize("env", [ArrayInfos, ArrayInfosNextStep, FinalInfos])
def test_vectorised_environments_give_arrays_of_numbers(env):
    runner = runner_of(env, info_metrics={"force": "mean", "success": "last"})
    runner.sample(10)
    # in ten steps one environment ends in every third one, with a mean of 2, the other in every fourth one, with 2.5
    means = [2.0] * 3 + [2.5] * 2 if env is not ArrayInfosNextStep else [2.0, 2.0, 2.5, 2.5]
    metrics = runner.get_metrics()
    assert metrics["num_episodes"] == len(means)
    assert metrics["info/force"] == pytest.approx(np.mean(means))
    assert metrics["info/success"] == 1.0


class Partners(Pair):
    def step(self, actions):
        *answer, infos = super().step(actions)
        return *answer, {agent: {"force": self.step_number} for agent in infos}


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_many_agents_have_a_metric_each(num_env_runners):
    algorithm = build(Partners, metrics={"force": "mean"}, num_env_runners=num_env_runners)
    try:
        results = algorithm.train()
        evaluated = algorithm.evaluate(2)
    finally:
        algorithm.stop()
    for found, prefix in ((results, "env_runners/"), (evaluated, "")):
        assert found[f"{prefix}info/force/left"] == 1.5  # it ends after two steps
        assert found[f"{prefix}info/force/right"] == 3.0  # after five


def test_a_run_of_many_agents_is_resumed_in_the_middle_of_an_episode(tmp_path):
    straight = build(Partners, metrics={"force": "sum"}, rollout_fragment_length=3)
    straight.train()
    straight.save_to_path(tmp_path / "run")
    resumed = build(Partners, metrics={"force": "sum"}, rollout_fragment_length=3)
    resumed.restore_from_path(tmp_path / "run")
    for algorithm in (straight, resumed):
        assert algorithm.train()["env_runners/info/force/right"] == 15.0


def test_a_name_that_no_info_has_is_said_once(caplog):
    algorithm = build(metrics=["force", "sucess"])
    for _ in range(2):
        results = algorithm.train()
    algorithm.stop()
    assert "env_runners/info/sucess" not in results
    (line,) = [each.message for each in caplog.records if "info_metrics" in each.message]
    assert "'sucess', but no info of the episodes that have ended has such a number" in line


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_text_in_place_of_a_number_is_an_error_that_names_it(mode):
    algorithm = build(metrics=["words"], vectorization_mode=mode)
    with pytest.raises(
        EnvContractError, match=r"environment 0 of .*Robot.?: info\['words'\] is 'left'.*one number"
    ):
        algorithm.train()
    algorithm.stop()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"success": "lst"},
            "'success' must be one of 'mean', 'last', 'sum', 'min', 'max', got 'lst'. Did you mean",
        ),
        ("success", "info_metrics must be names of numbers in info.*got 'success'"),
        ([1], "info_metrics must be names"),
    ],
)
def test_wrong_info_metrics_are_refused(value, message):
    with pytest.raises(ConfigError, match=message):
        PPOConfig().env_runners(info_metrics=value)
