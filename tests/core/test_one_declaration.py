"""A setting of sampling is declared once; commands, files, checks and evaluations follow from its declaration."""

import ast
import inspect
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import many_agents
import pytest
from test_cli import Terminal
from test_cli_algorithms import ALGORITHM

import plugrad as package
from plugrad import AlgorithmConfig
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.config import field
from plugrad.errors import ConfigError
from plugrad.sampling.evaluation import evaluation_settings


@dataclass(frozen=True, kw_only=True)
class Repeating(many_agents.Settings):
    """A config with a setting more, as a maintainer would add it to `SamplingSettings`."""

    action_repeat: int = field(
        1,
        section="env_runners",
        minimum=1,
        maximum=8,
        reason="the simulator knows no longer step",
        max_in_file=4,
        off=(1,),
        with_many_agents="repeat actions in the environment",
        new_episodes=True,
        in_evaluation=lambda value: 1,
        help="how many steps each action is taken for",
    )


DECLARATION = inspect.getsource(Repeating).rpartition('"""')[2]
IMPORTS = "from plugrad.config import field\n"
TRAIN = (
    *("train", "mine.py", "CartPole-v1", "--backend=numpy", "--out=run", "--quiet"),
    *("--stop-timesteps=16", "--training.train_batch_size=8", "--env_runners.num_envs_per_env_runner=2"),
    *("--rl_module.model_config={fcnet_hiddens = [1]}",),
)
RESUME = ("train", "--plugin=mine.py", "--resume=run", "--quiet", "--stop-timesteps=24")


@pytest.fixture
def plugrad(tmp_path, monkeypatch):
    """Commands in a folder with an algorithm that has the setting."""
    monkeypatch.chdir(tmp_path)
    assert "    ...\n" in ALGORITHM
    Path("mine.py").write_text(IMPORTS + ALGORITHM.replace("    ...\n", DECLARATION))
    return Terminal()


def saved(folder="run"):
    return load_checkpoint(Path(folder) / "checkpoints" / "last").metadata["config"]["action_repeat"]


def done(result):
    assert result.exit_code == 0, result.stderr
    return result


def refused(result):
    assert result.exit_code != 0
    return " ".join(result.stderr.split())


def test_a_declared_setting_is_an_option_of_commands_that_is_explained_and_checked(plugrad):
    shown = " ".join(done(plugrad("train", "mine.py", "--help")).stdout.split())
    assert "--env_runners.action_repeat" in shown
    assert "how many steps each action is taken for" in shown
    assert "at most 8, got 9: the simulator knows no longer step" in refused(
        plugrad(*TRAIN, "--env_runners.action_repeat=9")
    )


def test_a_declared_setting_is_written_and_resumed_and_changes_as_it_says(plugrad):
    done(plugrad(*TRAIN, "--env_runners.action_repeat=3"))
    assert tomllib.loads(Path("run/config.toml").read_text())["env_runners"]["action_repeat"] == saved() == 3
    done(plugrad(*RESUME))
    assert saved() == 3
    changed = ("--stop-timesteps=32", "--env_runners.action_repeat=2")
    assert "add --new-episodes" in refused(plugrad(*RESUME, *changed))
    done(plugrad(*RESUME, *changed, "--new-episodes"))
    assert saved() == 2


def test_a_file_asks_for_no_more_than_the_declaration_says(plugrad):
    Path("mine.toml").write_text("[env_runners]\naction_repeat = 5\n")
    assert "action_repeat=5: from a file at most 4 are taken" in refused(
        plugrad(*TRAIN, "--config=mine.toml")
    )
    done(plugrad(*TRAIN, "--config=mine.toml", "--trust"))
    assert saved() == 5
    last = load_checkpoint(Path("run/checkpoints/last"))
    save_checkpoint(Path("copy"), last.state, metadata=last.metadata)
    with pytest.raises(ConfigError, match="action_repeat=5: from a file at most 4 are taken"):
        Algorithm.from_checkpoint("copy")


def test_environments_of_many_agents_refuse_a_setting_for_one_agent_with_what_to_do_instead():
    many_agents.make_runner(many_agents.Pair).close()
    config = Repeating(env=many_agents.Pair, action_repeat=2)
    with pytest.raises(
        ConfigError, match=r"action_repeat=2 is for .* has many: repeat actions in the environment"
    ):
        many_agents.MultiAgentEnvRunner(config=config, act=many_agents.count)


def test_evaluations_have_the_value_that_a_setting_declares():
    assert evaluation_settings(Repeating(action_repeat=2))["action_repeat"] == 1
    expected = {"normalize_rewards": False, "clip_rewards": False, "atari": False}
    assert evaluation_settings(AlgorithmConfig(normalize_rewards=True, clip_rewards=1.0)) == expected
    found = evaluation_settings(AlgorithmConfig(atari={"frame_skip": 2}))["atari"]
    assert found == {"frame_skip": 2, "terminal_on_life_loss": False}


# --- where settings are named ---

OTHERS = ("cli/migrate", "testing")
"""Names of RLlib's, and settings that tests choose."""
DECLARED = "config/sampling_settings.py"
SECTIONS = ("env_runners", "evaluation", "offline_data")
MORE = {
    "num_env_runners": 7,  # who starts, counts and refuses other processes
    "env_wrappers": 3,
    "normalize_observations": 16,  # statistics belong to weights: whoever loads, saves or acts asks
    "normalize_rewards": 6,
    "atari": 6,  # two of them name the extra of this name
    "info_metrics": 11,  # env runners keep their counts under this name
    "output": 6,  # also a name of ONNX graphs
    "evaluation_env": 3,
    "evaluation_env_config": 3,
}
"""Settings that more files name, which may become fewer."""


def names_in(path):
    """The names that the code of a file reads, gives as keywords or has in a table; not those in its texts."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword):
            yield node.arg
        elif isinstance(node, ast.Constant):
            yield node.value


@cache
def names_by_file():
    """`{file: names}` of the core."""
    root = Path(package.__file__).parent
    files = {str(each.relative_to(root)): each for each in root.rglob("*.py")}
    return {file: set(names_in(path)) for file, path in files.items() if not file.startswith(OTHERS)}


SETTINGS = [name for name, info in AlgorithmConfig.fields().items() if info.section in SECTIONS]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_sampling_is_read_in_two_files_beside_its_declaration(name):
    files = {file for file, names in names_by_file().items() if name in names} - {DECLARED}
    assert files, "the setting is read nowhere"
    assert len(files) <= MORE.get(name, 2), files
