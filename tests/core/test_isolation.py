"""plugrad is small to import: no framework and no Ray before a learner or a group asks for one."""

import json
import subprocess
import sys

import pytest

HEAVY = [
    "torch",
    "tensorflow",
    "keras",
    "jax",
    "ray",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "plugrad_torch",
    "plugrad_tf2",
]

DOORS = {
    "import": "import plugrad",
    "every public name": "from plugrad import *",
    "list_plugins": "import plugrad; plugrad.list_plugins()",
    "get_algorithm": "import plugrad; plugrad.get_algorithm('ppo')",
    "a config": "from plugrad_ppo import PPOConfig; PPOConfig().environment('CartPole-v1').validate()",
    "checkpoint": "import plugrad.checkpoint",
    "help": "from click.testing import CliRunner; from plugrad.cli import main;"
    "assert CliRunner().invoke(main, ['--help']).exit_code == 0",
    "algorithms command": "from click.testing import CliRunner; from plugrad.cli import main;"
    "assert CliRunner().invoke(main, ['algorithms']).exit_code == 0",
    "plugins command": "from click.testing import CliRunner; from plugrad.cli import main;"
    "assert CliRunner().invoke(main, ['plugins']).exit_code == 0",
}


@pytest.mark.parametrize("door", DOORS)
def test_no_framework_is_imported_by(door: str) -> None:
    assert modules_after(DOORS[door]) & set(HEAVY) == set()


@pytest.mark.parametrize("door", ["import", "help"])
def test_numpy_and_gymnasium_are_not_imported_by(door: str) -> None:
    assert modules_after(DOORS[door]) & {"numpy", "gymnasium", "rich"} == set()


def modules_after(code: str) -> set[str]:
    """The modules that a new process has imported after some code."""
    code = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))
