"""What people expect of a tool at a prompt and in a notebook: completion, signs of life, how to go on, tables."""

import io
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from learning import ppo_config
from tiny_runs import FOR_EVER, TINY, plugrad, start, wait_for_iterations
from waiting import until

from plugrad.cli.terminal import waiting
from plugrad.results import Results

COMPLETE = "from plugrad.cli import main; main(prog_name='plugrad')"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_commands_in_each_shell(shell: str) -> None:
    script = plugrad("completion", shell, code=0).stdout
    assert "_PLUGRAD_COMPLETE" in script
    assert f"{shell}_complete" in script


@pytest.mark.parametrize(
    ("typed", "offered"), [("plugrad re", {"record", "report"}), ("plugrad plot --inter", {"--interval"})]
)
def test_what_a_shell_asks_is_answered(typed: str, offered: set[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_PLUGRAD_COMPLETE": "bash_complete"}
    command = [sys.executable, "-c", COMPLETE]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, check=True)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == offered


def test_whoever_waits_at_a_terminal_sees_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with waiting("filming [1] episode"):
        for _ in until(lambda: "filming [1] episode" in stream.getvalue(), "the line"):
            time.sleep(0.02)
    assert stream.getvalue().endswith("\x1b[2K"), "the line is gone when the wait is over"


def test_elsewhere_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with waiting("filming"):
        pass
    assert stream.getvalue() == ""


def test_ctrl_c_says_what_is_saved_and_how_to_go_on(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    process = start("train", "ppo", "CartPole-v1", *TINY, FOR_EVER, "--stop-reward=inf", "--out", run)
    wait_for_iterations(run, process, 3)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    (line,) = [each for each in output.splitlines() if "go on" in each]
    number = len((run / "metrics.jsonl").read_text().splitlines())
    assert line == f"iteration {number:,} is saved; go on: plugrad train --resume '{run}'"


def test_a_second_ctrl_c_says_it_too(tmp_path: Path) -> None:
    run, slow = tmp_path / "run", tmp_path / "slow.py"
    slow.write_text(
        "import pathlib, time\nfrom plugrad import hookimpl\n"
        "@hookimpl\ndef iteration_ended(algorithm, results):\n"
        f"    pathlib.Path({str(tmp_path / 'sleeps')!r}).touch()\n    time.sleep(600)\n"
    )
    options = (FOR_EVER, "--stop-reward=inf", "--out", run, "--plugin", slow)
    process = start("train", "ppo", "CartPole-v1", *TINY, *options)
    for _ in until((tmp_path / "sleeps").exists, "the first iteration"):
        assert process.poll() is None
        time.sleep(0.02)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    while "once more leaves at once" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"iteration 0 is saved; go on: plugrad train --resume {run}" in said


class Cells(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def test_a_notebook_shows_results_as_a_table() -> None:
    cells = Cells(Results({"env_runners/<b>": 1 / 3, "training_iteration": 2})._repr_html_())
    assert cells.found == ["result", "value", "env_runners/<b>", "0.33333", "training_iteration", "2"]
    assert cells.tags == {"table", "thead", "tbody", "tr", "th", "td"}


def test_a_notebook_shows_a_learner_as_tables() -> None:
    learner = ppo_config(hiddens=(2,)).build_learner()
    cells = Cells(learner._repr_html_())
    row = cells.found[cells.found.index("default_policy") :]
    assert row[0] == "default_policy"
    assert row[2:] == [f"{learner.num_parameters['default_policy']:,}", "True"]
    assert {"backend", "numpy", "device", "update"} <= {*cells.found}
