"""The command line without any framework: help, usage errors, listings, and what they import."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from plugrad.cli import COMMANDS, main
from plugrad.cli.doctor import Part, advice, framework_line, part_line
from plugrad.cli.options import setting_options
from plugrad.cli.parity import two_backends
from plugrad.config import SECTIONS
from plugrad.errors import ConfigError
from plugrad.hooks.plugin_records import PluginRecord, list_plugins
from plugrad.hooks.registry import get_algorithm

ROOT = Path(__file__).parents[2]


@dataclass
class Terminal:
    """Runs commands in an empty directory, in a wide terminal."""

    runner: CliRunner = field(default_factory=lambda: CliRunner(env={"COLUMNS": "110"}))

    def __call__(self, *arguments: str) -> Result:
        return self.runner.invoke(main, arguments, prog_name="plugrad")


@pytest.fixture
def plugrad(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Terminal()


def test_help_names_every_command(plugrad):
    result = plugrad("--help")
    assert result.exit_code == 0
    for command in (
        "train",
        "eval",
        "record",
        "export",
        "play",
        "video",
        "plot",
        "inspect",
        "algorithms",
        "backends",
        "plugins",
        "new-plugin",
        "parity",
        "doctor",
    ):
        assert re.search(rf"^  {command} +\w", result.output, re.MULTILINE)


def test_help_of_train_shows_every_setting_with_help_and_default_by_section(plugrad):
    result = plugrad("train", "--help")
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    places = [text.index(f"[{section}] {about}") for section, about in SECTIONS.items()]
    assert places == sorted(places)
    for name, info in get_algorithm("ppo").fields().items():
        assert f"--{info.section}.{name} " in text
        assert info.help in text
    assert "[default: 0.0003]" in text
    assert '{type = "adam", beta1 = 0.9, beta2 = 0.999, eps = 1e-08}' in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], r"No such command 'trian'. Did you mean 'train'\?"),
        (["train", "pppo"], r"no algorithm 'pppo'; .*Did you mean 'ppo'\?"),
        (["train", "pppo", "--help"], r"no algorithm 'pppo'"),
        (["train", "CartPole-v1"], r"no algorithm 'CartPole-v1'; .* second: plugrad train ppo CartPole-v1$"),
        (["train", "--training.learning_rate", "1"], r"'--training.learning_rate'. Here: training\(lr=...\)"),
        (
            ["train", "--backend", "numpy", "--rl_module.model_config", '{"net_arch": [3]}'],
            r"'net_arch'.*Here: .*fcnet_hiddens",
        ),
        (
            ["train", "--backend", "numpy", "--rl_module.rl_module_spec", "mine:Net"],
            r"not 'mine:Net'.*__spec__ = \"RLModuleSpec\"",
        ),
        (["train", "ppo", "--backend", "touch"], r"no backend 'touch'; .*Did you mean 'torch'\?"),
        (["train", "ppo", "CartPol-v1", "--backend", "numpy"], r"'CartPol-v1'. Did you mean 'CartPole-v1'\?"),
        (
            ["train", "--training.clip_parm", "1"],
            r"No such option '--training.clip_parm'. .*--training.clip_param",
        ),
        (["train", "--lr", "1e-3"], r"No such option '--lr'. Did you mean '--training.lr'\?"),
        (["train", "--training.lr", "fast"], "lr must be a number >= 0, .* got 'fast'"),
        (["train", "--training.lr"], "Option '--training.lr' requires an argument"),
        (["train", "--training.optimizer", "{type = 'adm'}"], r"Did you mean 'adam'\?"),
        (["train", "--framework.compile", "full"], "compile must be one of"),
        (["train", "--seed", "-1"], "--seed"),
        (["train", "--stop-time", "0"], "--stop-time"),
        (["train", "--backend=numpy", "--stop-time", "nan"], "'--stop-time': nan is no number"),
        (["train", "--backend=numpy", "--stop-reward", "nan"], "'--stop-reward': nan is no number"),
        *(
            (
                ["train", "--stop-timesteps", text],
                f"'--stop-timesteps': {text} is no whole number of 1 or more",
            )
            for text in ("inf", "nan", "0.5", "1000.5", "0")
        ),
        (["train", "--config", "nowhere.toml"], "nowhere.toml"),
        (["train", "--resume", "nowhere"], "nowhere"),
        (["train", "--resume", "."], "no run directory: it has no config.toml"),
        (["parity"], "Missing argument 'ALGORITHM'"),
        (["parity", "ppo", "--backends", "torch"], "'--backends' requires 2 arguments"),
        (["parity", "ppo", "--backends", "numpy", "nonpy"], r"no backend 'nonpy'; .* Did you mean 'numpy'\?"),
        (["parity", "ppo", "--framework.compile", "none"], "parity compares steps that are not compiled"),
        (["parity", "ppo", "--framework.backend", "tf2"], "parity compares two; name them with --backends"),
        (["eval", "nowhere"], "nowhere"),
        *(
            ([name, __file__], "is a file, .* in Python: plugrad.load_policy")
            for name in ("eval", "record", "play")
        ),
        (["plot"], "Missing argument"),
        (["plot", "."], "no run directory"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(plugrad, arguments, message):
    result = plugrad(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("plugrad: error: ")
    assert result.stderr.count("\n") == 1
    assert re.search(message, result.stderr)


def test_a_wrong_config_file_is_named(plugrad, tmp_path):
    (tmp_path / "mine.toml").write_text("[training]\nclip_parm = 1\n")
    result = plugrad("train", "--config", "mine.toml")
    assert result.exit_code == 2
    assert "mine.toml: [training] has no setting 'clip_parm'. Did you mean 'clip_param'?" in result.stderr


def test_a_directory_with_something_in_it_is_not_overwritten(plugrad, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "thesis.txt").write_text("all of it")
    result = plugrad("train", "--backend", "numpy", "--out", "there")
    assert result.exit_code == 2
    assert "--out: there is not empty; give another directory" in result.stderr
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["thesis.txt"]


def test_a_failure_is_exit_code_1_and_debug_shows_where(plugrad):
    result = plugrad("plugins", "--check", "ppoo")
    assert result.exit_code == 1
    assert "no plugin 'ppoo'" in result.stderr
    assert "Did you mean 'ppo'?" in result.stderr
    assert "Traceback" not in result.stderr
    for arguments in (["--debug", "plugins", "--check", "ppoo"], ["plugins", "--check", "ppoo", "--debug"]):
        assert "Traceback" in plugrad(*arguments).stderr


def test_a_failure_of_a_listener_names_it(plugrad):
    code = "from plugrad import hookimpl\n@hookimpl\ndef learner_built(learner):\n    return 1 / 0\n"
    Path("loud.py").write_text(code)
    result = plugrad("train", "ppo", "CartPole-v1", "--backend", "numpy", "--plugin", "loud.py")
    assert result.exit_code == 1
    words = (
        r"ZeroDivisionError: division by zero \(loud.py, line 4\); raised by listener '.*loud\.py', "
        r"hook 'learner_built' \(--debug"
    )
    assert re.search(words, result.stderr)


def test_plugins_lists_what_is_installed(plugrad):
    listed = json.loads(plugrad("plugins", "--json").stdout)
    assert {(each["kind"], each["name"]) for each in listed} == {(r.kind, r.name) for r in list_plugins()}
    assert {"torch", "tf2", "ppo"} <= {each["name"] for each in listed}
    table = plugrad("plugins").stdout
    assert all(name in table for name in ("backend", "torch", f"plugrad {version('plugrad')}"))
    assert max(map(len, table.splitlines())) <= 80


def test_plugins_check_loads_one(plugrad):
    result = plugrad("plugins", "--check", "ppo")
    assert result.exit_code == 0
    assert "loads, and trains: one update on 'numpy' with discrete actions\n" in result.stdout


def test_backends_says_what_each_can_do(plugrad, monkeypatch):
    records = [record("numpy", None, True), record("absent", "minelib", False, ("plugrad[mine]",))]
    monkeypatch.setattr("plugrad.cli.backends.list_plugins", lambda: records)
    found = {each["name"]: each for each in json.loads(plugrad("backends", "--json").stdout)}
    assert found["numpy"]["capabilities"] == ["float64", "second_derivatives"]
    assert found["numpy"]["devices"] == ["cpu"]
    assert "absent" in found["absent"]["problem"]
    table = plugrad("backends").stdout
    assert "float64" in table
    assert table.splitlines()[-1] == found["absent"]["problem"]


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_wait_asleep_unless_you_say_otherwise(plugrad, monkeypatch, given):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # noted, so that what the command sets is undone with the rest
        monkeypatch.delenv(name)
    if given:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    plugrad("doctor")
    assert os.environ["OMP_WAIT_POLICY"] == (given or "PASSIVE")
    assert os.environ.get("GOMP_SPINCOUNT") == (None if given else "1000")


def test_doctor_says_what_is_here_and_what_to_type(plugrad):
    result = plugrad("doctor")
    assert result.exit_code == 0
    python = ".".join(map(str, sys.version_info[:3]))
    for word in (python, "torch", "tensorflow", "matplotlib", "threads", "ppo", "what to type"):
        assert word in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["train", "--help"],
        ["plugins"],
        ["plugins", "--json"],
        ["doctor"],
        ["doctor", "--learners", "2"],
    ],
)
def test_help_and_listings_import_no_framework(arguments):
    code = f"""
import sys
from plugrad.cli import main
main({arguments!r}, standalone_mode=False)
found = {{"torch", "tensorflow", "keras", "jax", "ray", "matplotlib"}} & set(sys.modules)
sys.exit(f"imported {{found}}" if found else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_doctor_says_how_to_get_what_is_missing():
    part = Part("no_such_package", "plot", "plots")
    assert part_line(part).split("\n") == [
        "no_such_package  missing     for plots",
        '                pip install "plugrad[plot]"',
    ]


def record(name, requires, installed, install=()):
    return PluginRecord(name, "backend", "plugrad", "1.0", f"{name}:plugin", requires, installed, install)


def test_doctor_names_a_backends_framework_by_its_metadata():
    here = record("mine", "click", True, ("plugrad-mine",))
    assert framework_line(here) == f"click         {version('click'):<10}  for backend mine"
    gone = record("mine", "minelib", False, ("plugrad-mine[mine]", "plugrad-mine[mine-cpu]"))
    wanted = 'pip install "plugrad-mine[mine]" (or plugrad-mine[mine-cpu])'
    assert framework_line(gone) == f"minelib       missing     for backend mine\n{'':<16}{wanted}"


def test_doctor_says_what_a_frameworks_version_goes_without_and_imports_no_backend(tmp_path, monkeypatch):
    package = tmp_path / "goes_without"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    said = "def what_is_lost(version):\n    return f'{version} has no cache'\n"
    (package / "versions.py").write_text(said)
    monkeypatch.syspath_prepend(str(tmp_path))
    line = framework_line(record("goes_without", "click", True))
    assert line.splitlines()[1].strip() == f"{version('click')} has no cache"


NO_TORCH = record("torch", "torch", False, ("plugrad[torch]",))
NO_TF2 = record("tf2", "tensorflow", False, ("plugrad[tf2]", "plugrad[tf2-cpu]"))
INSTALL_TF2 = 'pip install "plugrad[tf2]" (or plugrad[tf2-cpu])'


@pytest.mark.parametrize(
    ("records", "lines"),
    [
        (
            [record("numpy", None, True), NO_TF2, NO_TORCH],
            [
                'pip install "plugrad[torch]", then: plugrad train',
                f"{INSTALL_TF2}, then: plugrad train ppo CartPole-v1 --backend tf2",
            ],
        ),
        (
            [NO_TORCH, record("mine", "minelib", True)],
            ["plugrad train ppo CartPole-v1 --backend mine", "plugrad train --help     for every setting"],
        ),
        (
            [record("tf2", "tensorflow", True), record("torch", "torch", True)],
            ["plugrad train", "plugrad train --help     for every setting"],
        ),
    ],
)
def test_doctor_advises_a_backend_that_is_there(records, lines):
    assert advice(records) == lines


TORCH, TF2 = record("torch", "torch", True), record("tf2", "tensorflow", True)


@pytest.mark.filterwarnings("error")
def test_parity_warns_of_nothing_of_its_own(plugrad):
    tiny = ["--rl_module.model_config={fcnet_hiddens = [1]}", "--training.train_batch_size=8"]
    result = plugrad("parity", "ppo", "--backends", "numpy", "strict", "--steps", "1", *tiny)
    assert result.exit_code == 0, result.output


def test_parity_compares_two_frameworks_and_the_default_one_comes_first():
    assert two_backends([record("numpy", None, True), TF2, TORCH]) == ("torch", "tf2")


@pytest.mark.parametrize(
    ("records", "who", "command"),
    [
        ([record("numpy", None, True)], "none", "one that you write"),
        ([TORCH, NO_TF2, record("numpy", None, True)], "torch", INSTALL_TF2),
        ([NO_TF2, NO_TORCH], "none", 'pip install "plugrad[torch]"'),
    ],
)
def test_parity_says_what_it_needs(records, who, command):
    words = f"here is {who}: install another, such as {command}, or name two with --backends"
    with pytest.raises(ConfigError, match=re.escape(words)):
        two_backends(records)


def commands_on(page: str) -> list[str]:
    """What the console blocks of a page tell to type, without comments."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (ROOT / page).read_text(), flags=re.M | re.S)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line[found.start() :] for line in lines if (found := re.search(r"(?<![\w.\[])plugrad \w", line))]


def own_command(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_all_commands_says_what_each_says_of_itself(name):
    assert own_command(name).name == name
    assert own_command(name).get_short_help_str(limit=200) == COMMANDS[name][1]


PAGES = [str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]
NEW_IN_LESSONS = {"docs/tutorial-a-paper.md": "mdqn"}
"""The algorithms that a reader writes there."""


@pytest.mark.parametrize("page", [page for page in PAGES if commands_on(page)])
def test_what_a_page_tells_to_type_exists(page):
    for line in commands_on(page):
        name = line.split()[1]
        options = {option for param in own_command(name).params for option in param.opts}
        settings = {
            f"--{info.section}.{field}"
            for algorithm in ("ppo", "bc", "dqn", "marwil")
            for field, info in get_algorithm(algorithm).fields().items()
        }
        typed = {word.split("=")[0] for word in line.split() if word.startswith("--")} - {"--help"}
        if (
            f"plugrad train {NEW_IN_LESSONS.get(page)} " in line
        ):  # its own settings are typed by the test of the lesson
            typed = {each for each in typed if not each.startswith("--training.")}
        assert typed <= options | settings, line


def test_help_fits_into_80_columns():
    for arguments in (
        ["--help"],
        ["backends", "--help"],
        ["new-plugin", "--help"],
        ["algorithms", "--help"],
        ["plugins", "--help"],
    ):
        said = CliRunner(env={"COLUMNS": "80"}).invoke(main, arguments, prog_name="plugrad").stdout
        assert max(map(len, said.splitlines())) <= 80
        assert "..." not in said.replace("[OPTIONS] COMMAND [ARGS]...", "")


@pytest.mark.parametrize(
    "typed", ["--env-runners.num-envs-per-env-runner", "--env_runners.num-envs-per_env-runner"]
)
def test_every_setting_may_be_typed_with_hyphens(plugrad, typed):
    """The value is refused, by the name that the config has."""
    for words in ([f"{typed}=0"], [typed, "0"]):
        result = plugrad("train", *words)
        assert result.exit_code == 2
        assert "num_envs_per_env_runner" in result.output


def test_the_hyphens_of_values_and_of_no_settings_stay(plugrad):
    result = plugrad("train", "--env-runners.no-such-thing", "3")
    assert "No such option '--env-runners.no-such-thing'" in result.output
    result = plugrad("train", "ppo", "no-env_of-mine-v0", "--debugging.seed", "1")
    assert "no-env_of-mine-v0" in result.output


def test_no_two_settings_differ_in_hyphens_alone():
    for algorithm in ("ppo", "dqn", "sac", "bc"):
        names = [option for each in setting_options(get_algorithm(algorithm)) for option in each.opts]
        assert len({name.replace("_", "-") for name in names}) == len(set(names))


def test_python_m_plugrad_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "plugrad", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"plugrad, version {version('plugrad')}\n"


def test_the_version_and_the_algorithm_are_names_of_the_package():
    import plugrad
    from plugrad.algorithm import Algorithm

    assert plugrad.__version__ == version("plugrad")
    assert plugrad.Algorithm is Algorithm
