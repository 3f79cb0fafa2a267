"""Malformed files in a run directory: one error that names the file and the line, or the file is not read at all."""

import json
import shutil
from math import inf
from pathlib import Path

import malicious_runs
import pytest
from click.testing import Result
from tiny_runs import TINY, plugrad, start, tiny_run, wait_for_iterations

from plugrad.cli.metrics_files import MAX_LINE_BYTES, read_rows
from plugrad.cli.run_directory import RunDirectory
from plugrad.cli.run_files import read_lines

ROW = b'{"training_iteration":1,"num_env_steps_sampled_lifetime":8}\n'


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("files") / "run", "--stop-timesteps=64")


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_settings_and_outcome_are_replaced_all_at_once(run: Path) -> None:
    files = [run / name for name in ("config.toml", "summary.json")]
    before = [file.read_text() for file in files]
    for file in files:
        file.with_suffix(".kept").hardlink_to(
            file
        )  # what a reader has open, or is left if the process is killed
    plugrad("train", "--resume", run, "--stop-timesteps=72", "--evaluation.evaluation_interval=9", code=0)
    assert [file.with_suffix(".kept").read_text() for file in files] == before
    assert all(file.read_text() != text for file, text in zip(files, before, strict=True))


def test_the_outcome_is_strict_json_also_with_a_goal_that_is_never_reached(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "--stop-timesteps=16", "--stop-reward=inf")
    found = json.loads((run / "summary.json").read_text(), parse_constant=pytest.fail)
    assert found["reward_goal"] == "inf"
    assert RunDirectory(run).read_summary()["reward_goal"] == inf


def resume(run: Path) -> Result:
    return plugrad("train", "--quiet", "--resume", run, "--stop-timesteps=72")


def assert_refused(done: Result, *words: str) -> None:
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("plugrad: error: ")
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(("about", "line"), malicious_runs.LINES[:-2], ids=lambda each: str(each)[:20])
def test_a_line_that_is_no_row_of_metrics_is_named(run: Path, about: str, line: bytes) -> None:
    (run / "metrics.jsonl").write_bytes(ROW + line + ROW)
    where = "" if about == "a long line" else ", line 2"
    assert_refused(resume(run), f"{run}/metrics.jsonl{where}")
    assert_refused(plugrad("plot", run), f"{run}/metrics.jsonl{where}")


@pytest.mark.parametrize(
    "plant", [malicious_runs.fifo, malicious_runs.directory, malicious_runs.link_to_zero]
)
def test_metrics_that_are_no_file_are_named_and_nobody_waits_for_them(
    run: Path, plant: malicious_runs.Spoil
) -> None:
    plant(run / "metrics.jsonl")
    assert_refused(resume(run), f"{run}/metrics.jsonl")
    assert_refused(plugrad("plot", run), f"{run}/metrics.jsonl")


def test_metrics_can_be_read_while_a_run_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(ROW + ROW[:20])
    lines = read_lines(path, MAX_LINE_BYTES)
    assert [next(lines), next(lines)] == [ROW, ROW[:20]]
    path.write_bytes(ROW + ROW)  # meanwhile the second row is whole
    assert list(lines) == [], "the rest of a line is no line"
    assert len(read_rows(path)) == 2


@pytest.mark.parametrize("command", [["eval", "--episodes=1"], ["record", "--episodes=1"], ["inspect"]])
@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", "summary.json"])
def test_who_needs_no_metrics_reads_none(run: Path, command: list[str], name: str) -> None:
    malicious_runs.fifo(run / name)
    done = plugrad(*command, run)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(("about", "text"), malicious_runs.TEXTS, ids=lambda each: str(each)[:20])
def test_settings_that_cannot_be_read_are_named(run: Path, about: str, text: bytes) -> None:
    (run / "config.toml").write_bytes(text)
    for done in (plugrad("eval", run), resume(run), plugrad("train", "--config", run / "config.toml")):
        assert done.exit_code in (1, 2)
        assert done.stderr.count("\n") == 1, done.stderr
        assert f"{run}/config.toml" in done.stderr or "no algorithm 'no_such'" in done.stderr


@pytest.mark.parametrize("text", [b"[1]", b"{", b"\xff", b"[" * 60_000, b" " * 100_000])
def test_a_summary_that_cannot_be_read_is_named(run: Path, text: bytes) -> None:
    (run / "summary.json").write_bytes(text)
    assert_refused(plugrad("plot", run), f"{run}/summary.json")


@pytest.mark.parametrize("text", ['stop_reward = "high"', "stop_timesteps = 1.5", "stop_timesteps = -1", "["])
def test_stop_conditions_that_cannot_be_read_are_named_and_nothing_changes(run: Path, text: str) -> None:
    (run / "stop.toml").write_text(text)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert_refused(plugrad("train", "--quiet", "--resume", run), f"{run}/stop.toml: ")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_killed_run_goes_on_to_the_stop_conditions_that_were_typed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("train", "ppo", *TINY, "--out", run, "--stop-timesteps=800", "--stop-reward=600")
    wait_for_iterations(run, process)
    process.kill()
    process.wait()
    summary = run / "summary.json"
    plugrad("train", "--quiet", "--resume", run, code=0)
    ended = json.loads(summary.read_text())
    assert (ended["timesteps"], ended["reward_goal"]) == (800, 600.0)
    plugrad("train", "--quiet", "--resume", run, "--stop-timesteps=808", "--stop-reward=inf", code=0)
    plugrad("train", "--quiet", "--resume", run, code=0)
    ended = json.loads(summary.read_text())
    assert (ended["timesteps"], ended["reward_goal"]) == (808, "inf"), "those typed last"
    (run / "stop.toml").unlink()
    plugrad("train", "--quiet", "--resume", run, "--stop-timesteps=816", code=0)
    assert json.loads(summary.read_text())["reward_goal"] == 475.0, "a run of an older version"


def test_a_torn_last_line_is_left_out(run: Path) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"training_iteration": 9, "num_env')
    assert resume(run).exit_code == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    assert [row["training_iteration"] for row in rows] == list(range(1, 10))


def test_a_place_where_nothing_can_be_written_is_named(run: Path) -> None:
    malicious_runs.directory(run / "metrics.csv")
    done = resume(run)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"plugrad: error: {run}/metrics.csv is a directory, not a regular file")


def test_a_file_where_the_checkpoints_should_be_is_named(run: Path) -> None:
    (run / "checkpoints").rename(run / "elsewhere")
    (run / "checkpoints").write_text("")
    assert_refused(plugrad("eval", run), f"{run} has no checkpoint yet")
    assert f"{run} has no readable checkpoint to resume from" in resume(run).stderr
