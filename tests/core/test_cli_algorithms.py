"""`plugrad algorithms` and `plugrad train --tuned`, with the algorithms that are installed and with one in a file."""

import json
import tomllib
from pathlib import Path

import gymnasium as gym
import needs
import pytest
from test_cli import Terminal
from test_figures import script

from plugrad.cli.tuned import all_tuned
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import get_algorithm
from plugrad.model_config import MODEL_SETTINGS

ALGORITHM = """
from dataclasses import dataclass
from gymnasium.spaces import Discrete
from plugrad import AlgorithmConfig, hookimpl
from plugrad.errors import ConfigError
from plugrad.networks import ActorCritic

@dataclass(frozen=True, kw_only=True)
class Config(AlgorithmConfig):
    ...

@hookimpl
def get_config_class():
    return Config

@hookimpl
def build_network(module_spec):
    if not isinstance(module_spec.action_space, Discrete):
        raise ConfigError(f"mine needs Discrete actions, found {module_spec.action_space}")
    return ActorCritic(module_spec)

@hookimpl
def compute_loss_for_module(learner, fwd_out):
    return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"]))
"""
TUNED = """
["CartPole-v1"]
stop_timesteps = 40
["CartPole-v1".training]
train_batch_size = 20
lr = 0.5
grad_clip = "none"
["CartPole-v1".env_runners]
num_envs_per_env_runner = 2
["CartPole-v1".rl_module]
model_config = { fcnet_hiddens = [2] }

["Acrobot-v1".training]
lr = 0.25
"""
TRAIN = ("train", "mine.py", "CartPole-v1", "--backend", "numpy", "--out", "run", "--quiet")
NAMES = [record.name for record in list_plugins() if record.kind == "algorithm"]


@pytest.fixture
def plugrad(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(ALGORITHM)
    Path("tuned").mkdir()
    Path("tuned/mine.toml").write_text(TUNED)
    return Terminal()


def listed(plugrad, *arguments):
    result = plugrad("algorithms", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return {each["name"]: each for each in json.loads(result.stdout)}


def test_all_algorithms_are_listed_with_the_spaces_that_they_take(plugrad):
    found = listed(plugrad)
    assert set(found) == set(NAMES)
    assert [each["problem"] for each in found.values()] == [None] * len(found)
    assert found["dqn"]["actions"] == ["Discrete"]
    assert found["ppo"]["actions"] == [
        "Discrete",
        "MultiDiscrete",
        "MultiBinary",
        "Box",
        "n-d Box",
        "Box without bounds",
        "Tuple",
        "Dict",
    ]
    assert found["ppo"]["observations"] == ["vectors", "images", "dicts"]
    assert found["sac"]["actions"] == ["Discrete", "Box", "n-d Box"]
    assert found["td3"]["actions"] == ["Box", "n-d Box"]


def test_the_table_is_narrow_and_has_all_names(plugrad):
    text = plugrad("algorithms").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in (*NAMES, "actions", "observations", "tuned for", "CartPole-v1"))


def test_an_algorithm_in_a_file_says_its_spaces_by_refusing_the_others(plugrad):
    mine = listed(plugrad, "mine.py")["mine"]
    assert mine["actions"] == ["Discrete"]
    assert list(mine["tuned"]) == ["CartPole-v1", "Acrobot-v1"]
    assert mine["tuned"]["CartPole-v1"]["stop_timesteps"] == 40


def test_the_tuned_settings_of_one_algorithm_are_shown_with_the_command(plugrad):
    text = plugrad("algorithms", "mine.py").stdout
    assert "# plugrad train mine Acrobot-v1 --tuned\ntraining.lr = 0.25\n" in text
    shown = text.partition("# plugrad train mine CartPole-v1 --tuned\n")[2].partition("\n\n")[0]
    assert tomllib.loads(shown) == tomllib.loads(TUNED)["CartPole-v1"]


def test_the_keys_of_model_config_are_listed_with_the_algorithms_own_defaults(plugrad):
    assert listed(plugrad, "dqn")["dqn"]["model_config"]["fcnet_hiddens"] == [256, 256]
    assert listed(plugrad, "ppo")["ppo"]["model_config"]["gru_cell_size"] == 256
    text = plugrad("algorithms", "dqn").stdout
    assert all(name in text for name in MODEL_SETTINGS)
    assert max(map(len, text.partition("# plugrad")[0].splitlines())) <= 80


def test_an_algorithm_that_cannot_be_used_does_not_hide_the_others(plugrad, tmp_path, monkeypatch):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[plugrad.algorithms]\nbroken = no_such_module:plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = listed(plugrad)
    assert "no_such_module" in found["broken"]["problem"]
    assert found["ppo"]["problem"] is None
    assert plugrad("algorithms", "broken").exit_code == 1


def test_listeners_hear_nothing_of_learners_that_are_only_asked(plugrad, monkeypatch):
    Path("loud.py").write_text(
        "from plugrad import hookimpl\n@hookimpl\ndef learner_built(learner):\n    return 1 / 0\n"
    )
    monkeypatch.setenv("PLUGRAD_PLUGINS", "loud.py")
    assert plugrad("algorithms", "mine.py").exit_code == 0
    assert plugrad(*TRAIN).exit_code == 1  # the listener is one that is heard


def used(plugrad, *arguments):
    result = plugrad(*TRAIN, *arguments)
    assert result.exit_code == 0, result.stderr
    return tomllib.loads(Path("run/config.toml").read_text()), json.loads(
        Path("run/summary.json").read_text()
    )


def test_a_tuned_run_is_one_of_the_file_and_its_config_says_so(plugrad):
    config, summary = used(plugrad, "--tuned")
    assert config["training"]["lr"] == 0.5
    assert config["training"]["grad_clip"] == "none"
    assert config["env_runners"]["num_envs_per_env_runner"] == 2
    assert config["rl_module"]["model_config"] == {"fcnet_hiddens": [2]}
    assert config["environment"]["env"] == "CartPole-v1"
    assert summary["timesteps"] == 40


def test_the_command_line_goes_before_tuned_settings_and_these_before_defaults(plugrad):
    config, summary = used(plugrad, "--tuned", "--training.lr", "0.125", "--stop-timesteps", "20")
    assert config["training"]["lr"] == 0.125
    assert config["training"]["train_batch_size"] == 20
    assert config["training"]["gamma"] == get_algorithm("ppo")().gamma
    assert summary["timesteps"] == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["train", "mine.py", "CartPole-v0", "--tuned"],
            "none for 'CartPole-v0'; mine has settings for CartPole-v1, A",
        ),
        (["train", "mine.py", "CartPole-v0", "--tuned"], "Did you mean 'CartPole-v1'?"),
        (["train", "mine.py", "--environment.env", "Taxi-v3", "--tuned"], "none for 'Taxi-v3'"),
        (["train", "bc", "CartPole-v1", "--tuned"], "bc comes without tuned settings"),
        (
            ["train", "mine.py", "CartPole-v1", "--tuned", "--config", "c.toml"],
            "--tuned and --config c.toml both",
        ),
    ],
)
def test_where_there_are_no_tuned_settings_nothing_is_trained(plugrad, arguments, words):
    Path("c.toml").write_text("")
    result = plugrad(*arguments, "--backend", "numpy")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not Path("runs").exists()


def test_a_run_that_goes_on_is_not_tuned_anew(plugrad):
    used(plugrad, "--tuned", "--stop-timesteps", "20")
    before = Path("run/config.toml").read_bytes()
    result = plugrad("train", "mine.py", "--resume", "run", "--tuned")
    assert result.exit_code == 2
    assert "--resume goes on with the run as it is: --tuned cannot be given with it" in result.stderr
    assert Path("run/config.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["CartPole-v1".training]\nlerning_rate = 1', "[training] has no setting 'lerning_rate'"),
        ('["CartPole-v1".training]\nlr = "fast"', "lr must be"),
        ('["CartPole-v1"]\nstop_timesteps = 0', "stop_timesteps must be a whole number of 1 or more"),
        ('"CartPole-v1" = 1', "expected a table"),
        ("[", "not a TOML config"),
    ],
)
def test_a_wrong_file_of_tuned_settings_is_named(plugrad, text, words):
    Path("tuned/mine.toml").write_text(text)
    for arguments in (
        ["train", "mine.py", "CartPole-v1", "--tuned", "--backend", "numpy"],
        ["algorithms", "mine.py"],
    ):
        result = plugrad(*arguments)
        assert result.exit_code == 2
        assert "tuned/mine.toml" in result.stderr
        assert words in result.stderr


@pytest.mark.parametrize("name", NAMES)
def test_tuned_settings_are_for_environments_that_there_are(name):
    for env, tuned in all_tuned(name, get_algorithm(name)).items():
        if env.startswith("ALE/"):
            needs.extra("ale_py")  # registers them
        assert env in gym.registry
        assert tuned.settings
        tuned.config.environment(env).validate()


@pytest.mark.parametrize(("name", "module"), [("ppo", "cartpole_plugrad"), ("dqn", "dqn_plugrad")])
def test_tuned_settings_for_cartpole_are_those_that_the_benchmarks_ran(name, module, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    ran = script(module).make_config("torch", "zoo", 0)
    tuned = all_tuned(name, get_algorithm(name))["CartPole-v1"].config
    assert tuned.environment("CartPole-v1").framework("torch").debugging(seed=0) == ran
