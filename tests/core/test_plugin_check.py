"""`plugrad plugins --check` is green only where a learner with the plugin is built, and updated."""

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import plugrad

LISTENER = """
from plugrad import hookimpl

@hookimpl{mark}
def {hook}({arguments}):
    {body}
"""
ALGORITHM = """
from dataclasses import dataclass
from plugrad import AlgorithmConfig, hookimpl

@dataclass(frozen=True, kw_only=True)
class Config(AlgorithmConfig):
    {setting}

@hookimpl
def get_config_class():
    return Config

@hookimpl
def compute_loss_for_module(learner, config, batch, fwd_out):
    {before}
    return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"] - batch["rewards"])){after}
"""
BACKEND = """
from plugrad import hookimpl
from plugrad.hooks.backend_spec import BackendInfo
from plugrad.testing.numpy_backend import *

@hookimpl
def backend_info():
    return BackendInfo("mine", "1")
"""


def listener(
    hook: str, arguments: str = "learner", body: str = "return (yield)", *, wraps: bool = True
) -> str:
    return LISTENER.format(hook=hook, arguments=arguments, body=body, mark="(wrapper=True)" if wraps else "")


def algorithm(before: str = "", after: str = "", setting: str = "...") -> str:
    return ALGORITHM.format(before=before or "...", after=after, setting=setting)


def check(code: int) -> str:
    return " ".join(plugrad("plugins", "--check", "mine.py", code=code).output.split())


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (listener("compute_losses", wraps=False, body="return {}"), "answers 'compute_losses', where one"),
        (listener("get_training_class", ""), "wraps 'get_training_class', which cannot be wrapped"),
        (listener("update_ended", "results", "1 / 0", wraps=False), "Error: division by zero; raised by listener"),
        (listener("update_begun", "", "raise SystemExit(0)", wraps=False), "SystemExit: 0"),
        ("import os\nos._exit(0)", "the process that loads and trains with it ended with code 0 without an answer"),
        (algorithm("1 / 0"), "ZeroDivisionError: division by zero"),
        (algorithm(after=" * float('nan')"), "a loss or gradient was not finite"),
        (
            algorithm() + "@hookimpl\ndef differentiate(learner, variables, loss_fn): ...",
            "backend 'numpy' and algorithm 'mine' both answer 'differentiate'",
        ),
        (
            BACKEND + "@hookimpl\ndef compute_loss_for_module(batch): ...",
            "backend 'mine' answers compute_loss_for_module, which an algorithm answers",
        ),
        (
            BACKEND
            + "@hookimpl(wrapper=True)\ndef postprocess_gradients():\n"
            + "    return {ref: 0.0 * each for ref, each in (yield).items()}",
            "backend 'mine': an update changed no weight",
        ),
    ],
)  # fmt: skip
def test_what_cannot_train_does_not_pass(file: Path, code: str, reason: str) -> None:
    file.write_text(code)
    said = check(1)
    assert "unusable: " in said
    assert reason in said
    assert "loads, and" not in said


def test_an_algorithm_that_trains_on_its_own_backend_alone_passes_and_the_check_says_where(
    file: Path,
) -> None:
    file.write_text(
        algorithm(
            "assert learner.config.backend != 'numpy'",
            setting="backend: str = __import__('plugrad').config.field('strict', help='its own')",
        )
    )
    assert "loads, and trains: one update on 'strict' with discrete actions" in check(0)


def test_what_a_plugin_prints_is_no_part_of_the_report(file: Path) -> None:
    file.write_text("print('[')\n" + algorithm("print(']')"))
    done = plugrad("plugins", "--check", "mine.py", "--json", code=0)
    assert done.stdout.startswith("[\n")
    assert done.stdout.endswith("]\n")


def test_debug_shows_the_line_that_raised(file: Path) -> None:
    file.write_text(algorithm("1 / 0  # here"))
    command = [sys.executable, "-m", "plugrad", "plugins", "--check", "mine.py"]
    plain, debug = (
        subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        for more in ([], ["--debug"])
    )
    assert plain.returncode == debug.returncode == 1
    assert "(--debug shows where)" in plain.stdout
    assert "Traceback" not in plain.stderr
    assert "1 / 0  # here" in debug.stderr
    assert "ZeroDivisionError" in debug.stdout
