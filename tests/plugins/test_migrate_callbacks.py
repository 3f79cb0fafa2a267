"""RLlib's callbacks and metrics work after `plugrad migrate`: in training, in evaluation and in other processes."""

import importlib
import itertools
import warnings
from pathlib import Path

import needs
import pytest
from test_migrate import rewritten

from plugrad.errors import ConfigError, PluginError

needs.extra("libcst")

COUNT = itertools.count()
PROGRAM = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from ray.rllib.utils.typing import EpisodeType


class Line(gym.Env):
    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {"t": 0}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == 4, False, {"t": self.t}


class Positions(RLlibCallback):
    def on_environment_created(self, *, env_runner, env, env_context, **kwargs):
        assert len(env.envs) == env.num_envs == 2, env.envs
        self.worker_index = env_runner.worker_index

    def on_episode_start(self, *, episode: EpisodeType, env, env_index, **kwargs):
        assert isinstance(env.unwrapped, gym.vector.VectorEnv)
        assert env.envs[env_index].unwrapped.t == 0
        episode.custom_data["seen"] = [episode.get_observations(-1)[0]]

    def on_episode_step(self, *, episode, rl_module, **kwargs):
        assert rl_module.observation_space.shape == (1,)
        assert episode.get_infos(-1)["t"] == episode.t == len(episode.get_actions())
        episode.custom_data["seen"].append(episode.get_observations(-1)[0])

    def on_episode_end(
        self, *, episode, prev_episode_chunks, env_runner, metrics_logger: MetricsLogger, env, env_index, **kwargs
    ):
        assert env.envs[env_index].unwrapped.t == 4
        assert episode.is_done and episode.is_terminated and not episode.is_truncated
        assert sum(episode.get_rewards(slice(-2, None))) == 2.0
        metrics_logger.log_value("last_position", episode.custom_data["seen"][-1], window=5)
        metrics_logger.log_dict({"a": 1, "b": {"c": 2}}, key="parts", reduce="max")
        assert metrics_logger.peek("last_position") == env_runner.metrics.peek("last_position") == 4.0

    def on_sample_end(self, *, env_runner, metrics_logger, samples, **kwargs):
        metrics_logger.log_value(("env", "chunks"), len(samples), reduce="sum", clear_on_reduce=True)
        metrics_logger.log_value("lists", np.zeros((2, 2)), reduce="item_series")
        with metrics_logger.log_time("seconds", reduce="min"):
            pass

    def on_algorithm_init(self, *, algorithm, metrics_logger, **kwargs):
        self.iterations = []
        metrics_logger.log_value("begun", 1, reduce="item")

    def on_train_result(self, *, algorithm, metrics_logger, result, **kwargs):
        self.iterations.append(result["training_iteration"])
        result["mine"] = result["env_runners"]["episode_return_mean"]
        metrics_logger.log_value("iterations", len(self.iterations), reduce="max")

    def on_evaluate_start(self, *, algorithm, metrics_logger, **kwargs):
        metrics_logger.log_value("evaluations", 1, reduce="sum")

    def on_evaluate_end(self, *, algorithm, metrics_logger, evaluation_metrics, **kwargs):
        evaluation_metrics["twice"] = 2 * evaluation_metrics["env_runners"]["episode_return_mean"]


config = (
    PPOConfig()
    .environment(Line)
    .env_runners(num_envs_per_env_runner=2)
    .training(train_batch_size=20, minibatch_size=10, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [4]})
    .debugging(seed=1)
    .callbacks(Positions)
)
"""


def program_of(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str):
    """A migrated program as a module, and the lines that were named."""
    new, lines = rewritten(folder, text)
    name = f"migrated_{next(COUNT)}"
    (folder / f"{name}.py").write_text(new)
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(name), lines


def algorithm_of(config, **settings):
    return config.framework("numpy").env_runners(env_runner_backend="process", **settings).build_algo()


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_a_callback_class_sees_episodes_and_its_metrics_are_in_the_results(
    tmp_path, monkeypatch, num_env_runners
):
    program, lines = program_of(tmp_path, monkeypatch, PROGRAM)
    assert lines == []
    algorithm = algorithm_of(program.config, num_env_runners=num_env_runners)
    results = algorithm.train()
    evaluated = algorithm.evaluate(2)
    again = algorithm.train()
    algorithm.save_to_path(tmp_path / "run")
    algorithm.stop()
    for found in (results, again):
        assert found["env_runners/last_position"] == found["mine"] == 4.0
        assert (found["env_runners/parts/a"], found["env_runners/parts/b/c"]) == (1.0, 2.0)
        assert [each.shape for each in found["env_runners/lists"]] == [(2, 2)]
        assert found["env_runners/seconds"] >= 0
    assert results["env_runners/env/chunks"] == 6.0  # two whole episodes and a chunk in each environment
    assert (results["begun"], results["iterations"], again["iterations"]) == (1.0, 1.0, 2.0)
    assert "evaluations" not in results
    assert again["evaluations"] == 1.0
    assert (evaluated["last_position"], evaluated["twice"]) == (4.0, 8.0)


FUNCTIONS = PROGRAM.replace(
    ".callbacks(Positions)", ".callbacks(on_train_result=marked, on_episode_end=[logged, logged])"
).replace(
    "config = (",
    """
def marked(*, result, **kwargs):
    result["marked"] = 1.0


def logged(*, metrics_logger, episode, **kwargs):
    metrics_logger.log_value("ends", episode.get_return(), reduce="sum")


config = (""",
)


def test_functions_are_callbacks_and_a_run_with_them_can_be_saved(tmp_path, monkeypatch):
    program, lines = program_of(tmp_path, monkeypatch, FUNCTIONS)
    assert lines == []
    algorithm = algorithm_of(program.config)
    results = algorithm.train()
    algorithm.save_to_path(tmp_path / "run")
    algorithm.stop()
    assert (results["marked"], results["env_runners/ends"]) == (1.0, 2 * 4 * 4.0)


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("Positions", "plugins(Positions)"),
        ("[Positions, Positions]", "plugins(Positions, Positions)"),
        ("callbacks_class=Positions", "plugins(Positions)"),
        ("partial(Positions, 1)", "plugins(callbacks(partial(Positions, 1)))"),
        ("Positions, on_train_result=marked", "plugins(callbacks(Positions, on_train_result=marked))"),
    ],
)
def test_what_a_config_is_given_is_named_as_listeners(tmp_path, given, becomes):
    text, lines = rewritten(tmp_path, PROGRAM.replace(".callbacks(Positions)", f".callbacks({given})"))
    assert lines == []
    assert f"    .{becomes}\n" in text


def test_callbacks_that_nothing_calls_are_named_at_their_line(tmp_path, monkeypatch):
    text = PROGRAM.replace(
        "def on_sample_end(", "def on_learn_on_batch(self, **kwargs): ...\n\n    def on_sample_end("
    )
    line = text.split("\n").index("    def on_learn_on_batch(self, **kwargs): ...") + 1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _, lines = program_of(tmp_path, monkeypatch, text)
    assert len(lines) == 1
    assert lines[0].startswith(f"{line}: on_learn_on_batch: nothing calls it here: write a listener")
    assert any("Positions.on_learn_on_batch: nothing calls it here" in str(each.message) for each in said)


def test_a_misspelt_callback_and_an_unknown_reduction_are_refused():
    from plugrad_rllib.callbacks import callbacks
    from plugrad_rllib.metrics_logger import MetricsLogger

    with pytest.raises(PluginError, match=r"on_episode_stop=.*on_episode_step"):
        callbacks(on_episode_stop=print)
    with pytest.raises(ConfigError, match="a sum over the whole run is one that you keep yourself"):
        MetricsLogger().log_value("a", 1, reduce="lifetime_sum")


OF_AGENTS = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import DefaultCallbacks
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.vector.vector_multi_agent_env import VectorMultiAgentEnv


class Turns(MultiAgentEnv):
    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["a", "b"]
        self.observation_spaces = {each: gym.spaces.Box(0, 9, (1,), np.float32) for each in self.agents}
        self.action_spaces = {each: gym.spaces.Discrete(2) for each in self.agents}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"a": np.zeros(1, np.float32)}, {}

    def step(self, actions):
        self.t += 1
        agent = "ab"[self.t % 2]
        is_over = {"__all__": self.t == 4}
        return {agent: np.full(1, self.t, np.float32)}, {agent: float(self.t)}, is_over, {"__all__": False}, {}


class Returns(DefaultCallbacks):
    def on_episode_end(self, *, episode, env, env_index, rl_module, metrics_logger, **kwargs):
        assert isinstance(env.unwrapped, VectorMultiAgentEnv)
        assert env.envs[env_index].t == 4
        assert set(rl_module) == {"p", "q"}
        assert episode.get_observations(0, agent_ids=["b"]) == {}
        for agent, part in episode.agent_episodes.items():
            assert episode.module_for(agent) == part.module_id == {"a": "p", "b": "q"}[agent]
            metrics_logger.log_value(("returns", agent), part.get_return())
            metrics_logger.log_value(("last", agent), part.get_observations(-1)[0], reduce="item")


config = (
    PPOConfig()
    .environment(Turns)
    .multi_agent(policies={"p", "q"}, policy_mapping_fn=lambda agent, *a, **kw: "p" if agent == "a" else "q")
    .training(train_batch_size=12, minibatch_size=6, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [4]})
    .debugging(seed=1)
    .callbacks(Returns)
)
"""


def test_a_callback_sees_the_parts_of_the_agents(tmp_path, monkeypatch):
    program, lines = program_of(tmp_path, monkeypatch, OF_AGENTS)
    assert [line for line in lines if "MultiAgentEnv: delete the base class" not in line] == []
    algorithm = algorithm_of(program.config)
    results = algorithm.train()
    algorithm.stop()
    found = {name: value for name, value in results.items() if "returns/" in name or "last/" in name}
    assert found == {
        "env_runners/returns/a": 6.0,
        "env_runners/returns/b": 4.0,
        "env_runners/last/a": 4.0,
        "env_runners/last/b": 3.0,
    }


OF_RESTORED = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback


class Line(gym.Env):
    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t % 9, np.float32), 1.0, self.t == 8, False, {}


class Steps(RLlibCallback):
    def on_episode_start(self, *, episode, **kwargs):
        episode.custom_data["steps"] = 0

    def on_episode_step(self, *, episode, **kwargs):
        episode.custom_data["steps"] += 1

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        metrics_logger.log_value("steps", episode.custom_data["steps"], reduce="max")


config = (
    PPOConfig()
    .environment(Line)
    .training(train_batch_size=12, minibatch_size=6, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [4]})
    .debugging(seed=1)
    .callbacks(Steps)
)
"""


def test_an_episode_that_a_restored_algorithm_goes_on_with_begins_for_its_callbacks(tmp_path, monkeypatch):
    """As in RLlib, where restored env runners begin new episodes."""
    program, _ = program_of(tmp_path, monkeypatch, OF_RESTORED)
    algorithm = algorithm_of(program.config)
    assert algorithm.train()["env_runners/steps"] == 8
    saved = algorithm.save_to_path(str(tmp_path / "saved"))  # within the second episode
    algorithm.stop()
    restored = algorithm_of(program.config)
    restored.restore_from_path(saved)
    assert restored.train()["env_runners/steps"] == 8
    restored.stop()
