"""A stranger's distributions: built, installed, proven, trained with, uninstalled; and missed by what needs them.

They are the code of the pages docs/write-a*.md and docs/tutorial-a-paper.md, and REDQ. They live in an environment of
their own, with the wheel of plugrad; what that requires, and the frameworks, it finds in the environment that the tests
run in.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.author

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NOT_PACKED = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "runs", "venv", "__pycache__")
FEW = ("--env_runners.num_envs_per_env_runner", "2", "--rl_module.model_config", "{fcnet_hiddens = [4]}")


class Environment:
    """A virtual environment with a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv/bin/python"
        site = self.output("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        # Behind its own. Not a plain path: editable installs are found by the .pth files of that folder.
        outer = sysconfig.get_path("purelib")
        Path(site, "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")

    def run(self, *arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        dropped = ("PYTHONPATH", "PLUGRAD_PLUGINS", "PLUGRAD_TEST_BACKENDS")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return subprocess.run(
            [self.python, *arguments], cwd=cwd or self.folder, env=kept, capture_output=True, text=True
        )

    def output(self, *arguments: str | Path, cwd: Path | None = None) -> str:
        done = self.run(*arguments, cwd=cwd)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def plugrad(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run("-c", "from plugrad.cli import main; main(prog_name='plugrad')", *arguments)

    def pip(self, *arguments: str | Path) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "--quiet", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """With plugrad and all distributions, installed from their wheels."""
    environment = Environment(tmp_path_factory.mktemp("stranger"))
    # Of copies, so that nothing that was built before gets into them.
    copies = [
        shutil.copytree(source, environment.folder / source.name, ignore=NOT_PACKED)
        for source in (ROOT, *sorted(HERE.glob("plugrad-*")))
    ]
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", environment.folder / "built", *copies], check=True)
    # --ignore-installed: the plugrad of the outer environment is none of its own.
    alone = ("--no-deps", "--no-index", "--ignore-installed")
    environment.pip("install", *alone, *environment.folder.glob("built/*.whl"))
    return environment


def prove(environment: Environment, distribution: str, *options: str) -> str:
    """What pytest says of the distribution's own tests, which pass."""
    tests = environment.folder / distribution / "tests"
    return environment.output("-m", "pytest", "-v", "-p", "no:cacheprovider", *options, cwd=tests)


def test_plugrad_itself_is_the_wheel(environment):
    where = environment.output(
        "-c", "import plugrad, plugrad_torch; print(plugrad.__file__, plugrad_torch.__file__)"
    )
    assert where.count(str(environment.folder / "venv")) == 2


def test_the_toy_backend_is_proven_and_what_it_leaves_open_is_said(environment):
    said = prove(environment, "plugrad-toy")
    assert re.search(r" [1-9]\d+ passed, \d+ skipped", said)
    assert "not proven by plugrad's suites" in said
    assert "backend 'toy' does not declare 'complete_update'" in said


IN_PROGRAMS = ("-k", "updates_are_those or compiled_by_xla or at_a_kink or answers")


@pytest.mark.parametrize(
    "options", [IN_PROGRAMS, pytest.param((), marks=pytest.mark.long)], ids=["some", "all"]
)
def test_the_functional_backend_is_proven_in_programs_too(environment, options):
    said = prove(environment, "plugrad-functional", *options)
    assert re.search(r" [1-9]\d+ passed, \d+ skipped", said)
    for mode in ("none", "auto", "complete_update"):
        assert f"test_updates_are_those_of_the_reference[{mode}] PASSED" in said
    for test in ("test_an_update_is_compiled_by_xla", "test_gradient_at_a_kink_is_the_documented_one[abs]"):
        assert f"{test} PASSED" in said


def test_the_collective_is_proven(environment):
    assert re.search(r" [1-9]\d+ passed in", prove(environment, "plugrad-folder"))


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf2", marks=pytest.mark.long)])
def test_the_algorithm_is_proven_on_every_backend(environment, framework):
    """The toy learns nothing here: it is too slow. Of JAX there is the functional backend."""
    [other] = {"torch", "tf2"} - {framework}
    left_out = f"not jax and not {other} and not (toy and (learns or goes_down))"
    said = prove(environment, "plugrad-reinforce", "-k", left_out)
    for backend in (framework, "functional"):
        assert f"test_it_learns_a_tiny_task[{backend}-discrete] PASSED" in said
        assert f"test_it_learns_a_tiny_task[{backend}-continuous] PASSED" in said
        assert f"test_updates_are_those_of_the_reference[{backend}-continuous-auto] PASSED" in said
    assert "test_gradients_are_the_finite_differences_of_the_reference[toy-discrete] PASSED" in said


@pytest.mark.parametrize(
    ("distribution", "actions"), [("plugrad-mdqn", "discrete"), ("plugrad-redq", "continuous")]
)
def test_the_algorithm_of_a_paper_is_proven_on_torch_and_tf2(environment, distribution, actions):
    said = prove(environment, distribution, "-k", "not jax and not functional and not toy")
    assert "test_targets_are_those_of_equation" in said
    for backend in ("torch", "tf2"):
        assert f"test_it_learns_a_tiny_task[{backend}-{actions}] PASSED" in said
        assert f"test_updates_are_those_of_the_reference[{backend}-{actions}-auto] PASSED" in said


def test_the_command_line_shows_and_checks_them(environment):
    records = json.loads(environment.plugrad("plugins", "--json").stdout)
    found = {each["name"]: (each["kind"], each["distribution"], each["version"]) for each in records}
    assert found["reinforce"] == ("algorithm", "plugrad-reinforce", "0.1.0")
    assert found["toy"] == ("backend", "plugrad-toy", "0.1.0")
    assert found["functional"] == ("backend", "plugrad-functional", "0.1.0")
    assert found["folder"] == ("collective", "plugrad-folder", "0.1.0")
    assert found["mdqn"] == ("algorithm", "plugrad-mdqn", "0.1.0")
    assert found["redq"] == ("algorithm", "plugrad-redq", "0.1.0")
    needs = {each["name"]: each["requires"] for each in records}
    assert (needs["toy"], needs["functional"]) == (None, "jax")
    for name in ("reinforce", "redq", "toy", "functional", "folder"):
        assert environment.plugrad("plugins", "--check", name).returncode == 0


@pytest.mark.parametrize("backend", ["toy", "functional"])
def test_a_backend_agrees_with_torch_step_by_step(environment, backend):
    tiny = ("--rl_module.model_config", "{fcnet_hiddens = [4]}")
    compared = environment.plugrad("parity", "reinforce", "--backends", backend, "torch", *tiny)
    assert compared.returncode == 0, compared.stdout + compared.stderr


@pytest.fixture(scope="module")
def runs(environment: Environment) -> Environment:
    """Run directories "of-torch", "of-toy" and "of-functional"."""
    for backend, steps in (("torch", "256"), ("toy", "64"), ("functional", "256")):
        command = (
            "train",
            "reinforce",
            "CartPole-v1",
            "--backend",
            backend,
            "--out",
            f"of-{backend}",
            "--quiet",
        )
        training = ("--training.train_batch_size", "64", "--stop-timesteps", steps)
        done = environment.plugrad(*command, *training, *FEW)
        assert done.returncode == 0, done.stderr
    return environment


@pytest.mark.parametrize("run", ["of-torch", "of-toy", "of-functional"])
def test_it_trains_on_the_command_line(runs, run):
    evaluated = json.loads(runs.plugrad("eval", run, "--episodes", "1", "--json").stdout)
    assert evaluated["episode_return_mean"] >= 1.0
    resumed = runs.plugrad("train", "--resume", run, "--stop-timesteps", "320", "--quiet")
    assert resumed.returncode == 0, resumed.stderr


# --- and then they are gone: the last tests ------------------------------------------------------------------------

OF_REINFORCE = (
    "no algorithm 'reinforce'; installed: .*ppo.* It was written with plugrad-reinforce 0.1.0: "
    "pip install plugrad-reinforce"
)
OF_TOY = (
    "no backend 'toy'; installed: .*torch.* It was written with plugrad-toy 0.1.0: pip install plugrad-toy"
)


def assert_refused(environment: Environment, run: str, words: str) -> None:
    """By all doors, with what to type."""
    for command in (("train", "--resume", run, "--stop-timesteps", "640"), ("eval", run)):
        refused = environment.plugrad(*command)
        assert refused.returncode == 2
        assert re.search(f"^plugrad: error: .*{words}$", refused.stderr.strip()), refused.stderr
    code = f"from plugrad import Learner; Learner.from_checkpoint('{run}/checkpoints/last')"
    assert re.search(words, environment.run("-c", code).stderr)


def test_without_the_backend_its_run_says_what_to_install_and_goes_on_elsewhere(runs):
    runs.pip("uninstall", "--yes", "plugrad-toy")
    assert_refused(runs, "of-toy", OF_TOY)
    assert runs.plugrad("eval", "of-toy", "--episodes", "1", "--backend", "torch").returncode == 0


def test_without_the_algorithm_its_run_says_what_to_install(runs):
    runs.pip("uninstall", "--yes", "plugrad-reinforce")
    assert_refused(runs, "of-torch", OF_REINFORCE)
