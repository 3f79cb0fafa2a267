"""What a run directory or a settings file names is called only if it is a class of the right kind that is installed."""

import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
import tomli_w
from click.testing import Result
from gymnasium.envs.classic_control import CartPoleEnv
from tiny_runs import TINY, plugrad, tiny_run

from plugrad import Learner, hookimpl, load_policy
from plugrad.importing import trusted_names
from plugrad.testing.numpy_module import ArrayVariable, NumpyRLModule

CALLED: list[str] = []
ENV = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"


class Imported(CartPoleEnv):
    """An environment in a module that is imported already."""


class Wrapped(gym.Wrapper):
    """A wrapper in a module that is imported already."""


class NoEnvironment:
    """A class of another kind."""

    def __init__(self, **_: Any) -> None:
        CALLED.append("class")


def make(**_: Any) -> gym.Env[Any, Any]:
    """A function that makes an environment, as a user's own run may have it."""
    CALLED.append("function")
    return CartPoleEnv()


@hookimpl
def update_ended(learner: Learner) -> None:
    CALLED.append("listener")


HERE = """
from pathlib import Path
from gymnasium import Wrapper
from gymnasium.envs.classic_control import CartPoleEnv
Path({marker!r}).touch()
class Mine(CartPoleEnv):
    pass
class Wrapped(Wrapper):
    pass
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("trust") / "run", "--stop-timesteps=16")


@pytest.fixture
def run(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run in the current folder, in which a module `here_only` lies too, as in a folder that a stranger packed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as with PYTHONPATH=. or python -m
    (tmp_path / "here_only.py").write_text(HERE.format(marker=str(tmp_path / "marker")))
    CALLED.clear()
    yield Path(shutil.copytree(whole, "run"))
    sys.modules.pop("here_only", None)


def name_in(run: Path, section: str, **settings: Any) -> None:
    config = tomllib.loads((run / "config.toml").read_text())
    config.setdefault(section, {}).update(settings)
    (run / "config.toml").write_text(tomli_w.dumps(config))


MODULE = {"__spec__": "RLModuleSpec", "module_class": f"{__name__}:NoEnvironment"}
HOSTILE = {
    "a program": ("environment", {"env": "subprocess:Popen", "env_config": {"args": ["touch", "marker"]}}),
    "a function": ("environment", {"env": "os:system", "env_config": {"command": "touch marker"}}),
    "a function of an imported module": ("environment", {"env": f"{__name__}:make"}),
    "a class of another kind": ("environment", {"env": f"{__name__}:NoEnvironment"}),
    "a module in the folder": ("environment", {"env": "here_only:Mine"}),
    "an id of a module in the folder": ("environment", {"env": "here_only:Mine-v0"}),
    "the standard library": ("environment", {"env": "antigravity:fly"}),
    "the main module of a package": ("environment", {"env": "pytest.__main__:Env-v0"}),
    "an attribute of a class": ("environment", {"env": f"{ENV}.step"}),
    "a learner of another kind": ("learners", {"learner_class": f"{__name__}:NoEnvironment"}),
    "connectors": ("learners", {"learner_connector": f"{__name__}:make"}),
    "a module of another kind": ("rl_module", {"rl_module_spec": MODULE}),
    "a wrapper of another kind": ("env_runners", {"env_wrappers": ["subprocess:Popen"]}),
    "a function as a wrapper": ("env_runners", {"env_wrappers": [[f"{__name__}:make", {}]]}),
    "a wrapper in the folder": ("env_runners", {"env_wrappers": ["here_only:Wrapped"]}),
    "a wrapper that writes files": (
        "env_runners",
        {"env_wrappers": [["gymnasium.wrappers:RecordVideo", {"video_folder": "marker"}]]},
    ),
    "a policy's module": ("multi_agent", {"policies": {"default_policy": MODULE}}),
    "a function of agents": ("multi_agent", {"agent_to_module": f"{__name__}:make"}),
}
LISTENERS = {
    "a listener's file": ("plugins", {"plugin_names": ["here_only.py"]}),
    "a listener's module": ("plugins", {"plugin_names": [f"{__name__}:make"]}),
}
COMMANDS = {
    "eval": lambda run: ["eval", run],
    "record": lambda run: ["record", run],
    "resume": lambda run: ["train", "--resume", run, "--stop-timesteps=32"],
    "config": lambda run: [
        "train",
        *TINY,
        "--config",
        run / "config.toml",
        "--stop-timesteps=16",
        "--out=new",
    ],
}


def test_a_run_of_more_environments_than_a_file_may_ask_for_is_opened_where_it_is_trusted(
    run: Path, tmp_path: Path
) -> None:
    number = "--env_runners.num_envs_per_env_runner=1025"
    tiny_run(tmp_path / "many", number, "--stop-timesteps=1")
    for command in (
        ["eval", "many"],
        ["train", "--resume", "many", "--stop-timesteps=2000"],
        ["train", *TINY[:-2], "--config", "many/config.toml", "--stop-timesteps=1", "--out=new"],
    ):
        refused = plugrad(*command, code=2).stderr
        assert "many/config.toml: num_envs_per_env_runner=1025: from a file at most 1024 are taken" in refused
        allowed = shlex.split(refused.rpartition("type: plugrad ")[2])
        assert allowed == [*command, "--trust"]
        plugrad(*allowed, code=0)
    plugrad("train", "--config", "many/config.toml", number, "--stop-timesteps=1", "--out=typed", code=0)
    assert load_policy("many").predict(np.zeros(4, np.float32))[0] in (0, 1)  # it makes no environments


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_leads_to_no_function_and_to_nothing_that_is_not_installed(
    run: Path, what: str, command: str
) -> None:
    section, settings = HOSTILE[what]
    name_in(run, section, **settings)
    done = plugrad(*COMMANDS[command](run))
    assert done.exit_code == 2, done.output
    assert re.search(
        rf"config.toml: {next(iter(settings))} names '.*which is not called because a file names it",
        done.stderr,
    )
    assert done.stderr.count("\n") == 1
    assert not CALLED
    assert not list(Path().rglob("marker"))
    assert not Path("new").exists()


@pytest.mark.parametrize("command", ["resume", "config"])
@pytest.mark.parametrize("what", LISTENERS)
def test_a_file_loads_no_listener_that_is_not_installed(run: Path, what: str, command: str) -> None:
    section, settings = LISTENERS[what]
    name_in(run, section, **settings)
    done = plugrad(*COMMANDS[command](run))
    assert done.exit_code == 2, done.output
    assert "which is not called because a file names it" in done.stderr
    assert not Path("marker").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("env", [ENV, f"{__name__}:Imported", "gymnasium.envs.classic_control:CartPole-v1"])
def test_an_environment_of_an_installed_or_imported_package_needs_no_word(
    run: Path, env: str, command: str
) -> None:
    name_in(run, "environment", env=env)
    done = plugrad(*COMMANDS[command](run))
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", ["eval", "config"])
@pytest.mark.parametrize(
    "wrapper",
    [["gymnasium.wrappers:ClipReward", {"min_reward": 0.5}], f"{__name__}:Wrapped"],
)
def test_a_wrapper_of_an_installed_or_imported_package_needs_no_word(
    run: Path, wrapper: Any, command: str
) -> None:
    name_in(run, "env_runners", env_wrappers=[wrapper])
    done = plugrad(*COMMANDS[command](run))
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("env", [f"{__name__}:make", "here_only:Mine"])
def test_the_command_that_the_error_prints_works(run: Path, env: str, command: str) -> None:
    name_in(run, "environment", env=env)
    refused = plugrad(*COMMANDS[command](run))
    typed = refused.stderr.partition("type: ")[2].strip()
    words = [str(word) for word in COMMANDS[command](run)]
    assert shlex.split(typed) == ["plugrad", *words, "--env", env]
    done = plugrad(*shlex.split(typed)[1:])
    assert done.exit_code == 0, done.output
    assert CALLED or Path("marker").exists()


class OwnNetwork(NumpyRLModule):
    """A network of the user's own class."""

    def setup(self) -> None:
        self.pi = ArrayVariable(np.ones((self.observation_space.shape[0], 2), np.float32))

    def _forward(self, batch: Any, **kwargs: Any) -> dict[str, Any]:
        outputs = batch["obs"] @ self.pi.read()
        return {"action_dist_inputs": outputs, "vf_preds": outputs[:, 0]}


def test_export_takes_the_own_network_of_a_run_where_it_is_trusted(tmp_path: Path) -> None:
    spec = f'{{__spec__ = "RLModuleSpec", module_class = "{__name__}:OwnNetwork"}}'
    run = tiny_run(tmp_path / "run", "--stop-timesteps=16", "--rl_module.rl_module_spec", spec)
    command = ("export", run, "-o", tmp_path / "policy.safetensors")
    assert "OwnNetwork" in plugrad(*command, code=2).stderr
    assert not (tmp_path / "policy.safetensors").exists()
    plugrad(*command, "--trust", code=0)
    space = CartPoleEnv().observation_space
    module = OwnNetwork(observation_space=space, action_space=gym.spaces.Discrete(2))
    policy = load_policy(tmp_path / "policy.safetensors", module=module)
    assert policy.predict(np.zeros(4, np.float32))[0] in (0, 1)


def test_trust_calls_what_the_files_name(run: Path) -> None:
    name_in(run, "environment", env=f"{__name__}:make")
    assert "--env" in plugrad("eval", run).stderr
    assert plugrad("eval", run, "--trust").exit_code == 0
    assert set(CALLED) == {"function"}


def test_a_listener_that_is_typed_again_is_loaded(run: Path) -> None:
    Path("ears.py").write_text(f"from {__name__} import update_ended\n")
    name_in(run, "plugins", plugin_names=[str(Path("ears.py").resolve())])
    resume = [*COMMANDS["resume"](run)]
    refused = plugrad(*resume)
    assert refused.stderr.strip().endswith(f"--plugin {Path('ears.py').resolve()}")
    assert plugrad(*resume, "--plugin", "ears.py").exit_code == 0
    assert "listener" in CALLED


def test_a_checkpoint_takes_the_environment_that_is_typed(run: Path) -> None:
    done = plugrad("eval", run / "checkpoints" / "last", "--env", f"{__name__}:make")
    assert done.exit_code == 0, done.output
    assert CALLED


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("plugrad.rl_module.random_module:RandomRLModule", trusted_names.MODULE),
        ("plugrad.learner.learner:Learner", trusted_names.LEARNER),
        (f"{gym.Env.__module__}:Env", trusted_names.ENVIRONMENT),
        ("pettingzoo.classic.connect_four_v3:env", trusted_names.ENVIRONMENT),
        ("mpe2.simple_spread_v3:parallel_env", trusted_names.ENVIRONMENT),
    ],
)
def test_a_class_of_the_kind_that_a_setting_wants_may_be_named(name: str, kinds: tuple[str, ...]) -> None:
    if name.split(".")[0] in ("pettingzoo", "mpe2"):
        needs.extra(name.partition(":")[0])
    assert trusted_names.reason_against(name, kinds) is None


@pytest.mark.parametrize(
    "name",
    [
        "pettingzoo.utils.conversions:parallel_wrapper_fn",
        "pettingzoo.classic.connect_four_v3:env.__call__",
        "pettingzoo.test:api_test",
    ],
)
def test_other_functions_of_pettingzoo_may_not_be_named(name: str) -> None:
    needs.extra("pettingzoo.classic.connect_four_v3")
    assert "no class derived from" in str(trusted_names.reason_against(name, trusted_names.ENVIRONMENT))


def test_a_function_by_pettingzoos_names_elsewhere_may_not_be_named() -> None:
    name = f"{__name__}:env"
    assert "no class derived from" in str(trusted_names.reason_against(name, trusted_names.ENVIRONMENT))


raw_env, env = Imported, make


class Waits:
    """Finds no module, and meets the other thread in the middle of an import where that is possible."""

    def __init__(self) -> None:
        self.first, self.second, self.first_is_done = Event(), Event(), Event()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "numpy.first":
            self.first.set()
            self.second.wait(0.5)
        if name == "numpy.second":
            self.second.set()
            self.first_is_done.wait(0.5)


def test_names_that_two_threads_look_up_at_once_leave_the_current_folder_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    waits, before = Waits(), list(sys.path)
    monkeypatch.setattr(sys, "meta_path", [waits, *sys.meta_path])
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(trusted_names.reason_against, "numpy.first:Env", trusted_names.ENVIRONMENT)
        assert waits.first.wait(10)
        other = threads.submit(trusted_names.reason_against, "numpy.second:Env", trusted_names.ENVIRONMENT)
        assert "numpy.first" in str(one.result())
        waits.first_is_done.set()
        assert "numpy.second" in str(other.result())
    assert sys.path == before


# --- folders to write to ----------------------------------------------------------------------------------------------


def resume(run: Path, *more: object, code: int) -> Result:
    """Go on for so long that episodes end, which are what is recorded."""
    return plugrad("train", "--resume", run, "--quiet", "--stop-timesteps=160", *more, code=code)


def test_a_run_that_goes_on_writes_where_its_file_says_only_in_its_own_directory(
    run: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    name_in(run, "offline_data", output=str(elsewhere))
    done = resume(run, code=2)
    assert done.stderr.startswith(f"plugrad: error: {run}/config.toml: offline_data.output=")
    assert "outside of the run's directory" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "--trust" in done.stderr
    assert not elsewhere.exists()
    resume(run, "--trust", code=0)
    assert elsewhere.is_dir()


def test_a_run_may_record_into_its_own_directory_but_through_no_link(run: Path, tmp_path: Path) -> None:
    name_in(run, "offline_data", output=str(run / "recorded"))
    (tmp_path / "elsewhere").mkdir()
    (run / "recorded").symlink_to(tmp_path / "elsewhere")
    resume(run, code=2)
    (run / "recorded").unlink()
    for name in (run, run / ".." / "beside", run / "recorded" / ".." / ".."):
        name_in(run, "offline_data", output=str(name))
        resume(run, code=2)
    name_in(run, "offline_data", output=str(run / "recorded"))
    resume(run, code=0)
    assert (run / "recorded").is_dir()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_of_settings_names_no_folder_to_write_to_unless_that_is_typed(
    run: Path, tmp_path: Path
) -> None:
    name_in(run, "offline_data", output=str(tmp_path / "elsewhere"))
    shutil.copy(run / "config.toml", tmp_path / "mine.toml")
    new = ["train", "ppo", "--config", tmp_path / "mine.toml", "--quiet", "--stop-timesteps=160"]
    assert "offline_data.output" in plugrad(*new, "--out", tmp_path / "a", code=2).stderr
    assert not (tmp_path / "elsewhere").exists()
    plugrad(*new, "--out", tmp_path / "b", "--offline_data.output", tmp_path / "typed", code=0)
    assert ((tmp_path / "typed").is_dir(), (tmp_path / "elsewhere").exists()) == (True, False)


def test_who_opens_a_run_records_nothing_because_its_file_says_so(run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    name_in(run, "offline_data", output=str(elsewhere))
    resume(run, "--trust", code=0)
    shutil.rmtree(elsewhere)
    for opened in (run, run / "checkpoints" / "last"):
        plugrad("eval", opened, "--episodes=1", code=0)
        plugrad("record", opened, "--timesteps=64", "-o", tmp_path / "typed", code=0)
    assert ((tmp_path / "typed").is_dir(), elsewhere.exists()) == (True, False)
