"""Plugins that are in no distribution yet: files and `module:Name`, on the command line and nowhere else."""

import json
import os
import subprocess
import sys

import pytest
import tiny_runs

from plugrad.cli.run_directory import RunDirectory
from plugrad.errors import PluginError
from plugrad.hooks.registry import load_listeners

ALGORITHM = '''
"""Its loss is the error of the values."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plugrad import AlgorithmConfig, hookimpl
from plugrad.config import field

with open("loaded", "a") as file:
    file.write("once\\n")


@dataclass(frozen=True, kw_only=True)
class Config(AlgorithmConfig):
    coefficient: float = field(0.5, help="of the error")


class Plugin:
    @hookimpl
    def get_config_class(self):
        return Config

    @hookimpl
    def compute_loss_for_module(self, learner, config, batch, fwd_out):
        return config.coefficient * learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["rewards"]))


get_config_class = Plugin().get_config_class
compute_loss_for_module = Plugin().compute_loss_for_module
'''
BACKEND = """
from plugrad import hookimpl
from plugrad.hooks.backend_spec import BackendInfo
from plugrad.testing.numpy_backend import *
@hookimpl
def backend_info():
    return BackendInfo("mine", "1")
"""
CLASS = """
from plugrad import hookimpl
class Ears:
    @hookimpl
    def update_ended(self, results):
        with open("heard", "a") as file:
            file.write("once\\n")
"""
LISTENER = f"{CLASS}update_ended = Ears().update_ended\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, with three plugins in it; nothing that another test named is known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("plugrad.hooks.registry._USED", {})
    for name, code in {"my_algo": ALGORITHM, "mine": BACKEND, "my_ears": LISTENER}.items():
        (tmp_path / f"{name}.py").write_text(code)
    return tmp_path


def plugrad(*arguments, code=0):
    return tiny_runs.plugrad(*arguments, code=code)


def in_a_process_of_its_own(*commands):
    """Exit code and error of each, where nothing was named before."""
    program = f"""
import json
from click.testing import CliRunner
from plugrad.cli import main
done = [CliRunner().invoke(main, command) for command in {list(commands)!r}]
print(json.dumps([[each.exit_code, each.stderr] for each in done]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def train(*arguments, code=0):
    return plugrad(
        "train", *arguments, *tiny_runs.TINY, "--quiet", "--out=run", "--stop-timesteps=16", code=code
    )


@pytest.mark.parametrize(
    "named",
    [
        ["--plugin", "my_algo.py"],
        ["my_algo", "CartPole-v1", "--plugin=my_algo.py"],
        ["my_algo.py"],
        ["my_algo:Plugin", "CartPole-v1"],
        ["my_algo", "--plugin", "my_algo:Plugin"],
    ],
)
def test_an_algorithm_in_a_file_trains_by_any_of_its_names(folder, monkeypatch, named):
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "my_algo", raising=False)
    train(*named, "--training.coefficient=0.25")
    config = RunDirectory.open(folder / "run").read_config()
    assert type(config).__name__ == "Config"
    assert config.coefficient == 0.25
    assert config.to_dict()["algorithm"] == "my_algo"
    assert (folder / "loaded").read_text() == "once\n"


def test_such_a_run_is_evaluated_resumed_and_recorded_if_the_file_is_named_again(folder):
    train("--plugin", "my_algo.py")
    about = json.loads(plugrad("eval", "run", "--json", "--plugin", "my_algo.py").stdout)
    assert about["num_episodes"] == 1
    assert "1 episodes" in plugrad("record", "run", "--episodes=1", "--plugin=my_algo.py").stdout
    plugrad("train", "--resume=run", "--plugin=my_algo.py", "--stop-timesteps=32", "--quiet")
    assert RunDirectory.open(folder / "run").read_summary()["timesteps"] == 32


def test_a_run_a_checkpoint_or_a_folder_never_loads_a_file_that_nobody_names(folder):
    train("--plugin", "my_algo.py")
    (folder / "loaded").unlink()
    commands = (["eval", "run"], ["train", "--resume", "run"], ["train", "my_algo"])
    for exit_code, said in in_a_process_of_its_own(*commands):
        assert exit_code == 2
        assert "no algorithm 'my_algo'; installed: " in said
        assert said.endswith("If it is in a file: --plugin FILE.py\n")
    assert not (folder / "loaded").exists()
    written = "".join(path.read_text() for path in (folder / "run").rglob("*.[jt][so][om][nl]*"))
    assert "my_algo" in written
    assert "my_algo.py" not in written


def test_a_backend_in_a_file_is_known_by_its_name_too(folder):
    plugrad(
        "train",
        *tiny_runs.TINY,
        "--quiet",
        "--backend=mine",
        "--plugin=mine.py",
        "--out=run",
        "--stop-timesteps=8",
    )
    assert RunDirectory.open(folder / "run").read_config().backend == "mine"
    plugrad("eval", "run", "--plugin", "mine.py")


@pytest.mark.parametrize(
    "named",
    [
        "--plugin=my_ears.py",
        "--plugin=my_ears:Ears",
        "--plugin=my_ears.py:Ears",
        '--plugins.plugin_names=["my_ears:Ears"]',
    ],
)
@pytest.mark.parametrize("code", [LISTENER, CLASS])
def test_a_listener_is_a_file_or_a_class_and_is_kept_in_the_config(folder, monkeypatch, code, named):
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", ".")])
    monkeypatch.delitem(sys.modules, "my_ears", raising=False)
    (folder / "my_ears.py").write_text(code)
    train("ppo", named)
    assert (folder / "heard").read_text() == "once\n" * 2
    (kept,) = RunDirectory.open(folder / "run").read_config().plugin_names
    assert kept == (str(folder / "my_ears.py") if named.endswith(".py") else "my_ears:Ears")
    plugrad("train", "--resume=run", "--plugin", kept, "--stop-timesteps=32", "--quiet", code=0)
    assert (folder / "heard").read_text() == "once\n" * 4


class Deaf:
    def iteration_ended(self, results):
        """It is not marked."""


@pytest.mark.parametrize("named", ["json:dumps", Deaf])
def test_a_listener_without_a_hook_is_refused_from_python_too(named):
    with pytest.raises(PluginError, match="has no hook: write @hookimpl above"):
        load_listeners((named,))


@pytest.mark.parametrize(
    ("code", "arguments", "exit_code", "words"),
    [
        (None, ["--plugin=nowhere.py"], 1, "plugin file 'nowhere.py' is not there"),
        ("1 / 0", ["--plugin=bad.py"], 1, "plugin file 'bad.py' fails to load: ZeroDivisionError: "),
        ("def (", ["--plugin=bad.py"], 1, "plugin file 'bad.py' fails to load: SyntaxError: "),
        (LISTENER.replace("ended", "endet"), ["--plugin=bad.py"], 1, "Did you mean 'update_ended'?"),
        (ALGORITHM, ["--plugin=ppo.py"], 1, "algorithm 'ppo' is the name of one of plugrad "),
        ("", ["--plugin=bad.py"], 1, "bad.py' has no hook: write @hookimpl above its functions or methods"),
        ("def update_ended(results): 1", ["--plugin=bad.py"], 1, "has no hook: write @hookimpl above update_ended"),
        (CLASS.replace("@hookimpl", ""), ["--plugin=bad.py"], 1, "bad.py' has no hook: write @hookimpl above its"),
        (CLASS + "ears = Ears()", ["--plugin=bad.py"], 1, "several plugins: name one, bad:Ears or bad:ears, in the"),
        (CLASS + "    def __init__(self, size): 1", ["--plugin=bad.py"], 1, "bad.py': Ears() fails: TypeError: "),
        (LISTENER, ["bad.py"], 2, "bad.py' is no algorithm: it lacks the hook 'get_config_class'"),
        (None, ["nowhere:Plugin"], 2, "No module named 'nowhere'. Is it installed? The current folder is searched for"),
        (None, ["--plugin=json:Nothing"], 2, "json has no 'Nothing'"),
        (ALGORITHM, ["bad.py", "--learners=2"], 2, "bad.py is known to this process only: for remote learners"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_line_and_nothing_is_written(folder, code, arguments, exit_code, words):
    for name in ("bad.py", "ppo.py"):
        if code is not None:
            (folder / name).write_text(code)
    said = train(*arguments, code=exit_code).stderr
    assert words in said
    assert said.count("\n") == 1
    assert not (folder / "run").exists()


def test_a_config_cannot_bring_an_algorithm_as_a_listener(folder):
    with pytest.raises(PluginError, match="algorithm 'my_algo' is no listener: it comes before the config"):
        load_listeners(("my_algo.py",))


def test_check_refuses_a_file_without_a_hook(folder):
    (folder / "deaf.py").write_text(CLASS.replace("@hookimpl", ""))
    assert "unusable: plugin" in plugrad("plugins", "--check", "deaf.py", code=1).stdout
    (folder / "deaf.py").write_text(CLASS)
    assert (
        "loads, and trains: one update of a tiny actor-critic"
        in plugrad("plugins", "--check", "deaf:Ears", code=0).stdout
    )


def test_check_shows_a_file(folder):
    (report,) = json.loads(plugrad("plugins", "--check", "my_algo.py", "--json").stdout)
    assert (report["kind"], report["name"], report["reason"]) == ("algorithm", "my_algo", None)
    assert [each["hook"] for each in report["hooks"]] == ["compute_loss_for_module", "get_config_class"]
    before = ALGORITHM.split("    @hookimpl\n    def compute_loss_for_module")[0]
    line = before.count("\n") + 1
    assert report["hooks"][0]["where"] == f"{os.path.realpath(folder / 'my_algo.py')}:{line}"
