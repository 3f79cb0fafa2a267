"""`plugrad ls`: the runs below a folder, and what a stranger may have put there."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import FOR_EVER, TINY, plugrad, start, tiny_run, wait_for_iterations


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(
        tmp_path_factory.mktemp("ls") / "whole", "CartPole-v1", "--stop-timesteps=256", "--seed=3"
    )


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    (tmp_path / "runs" / "deeper").mkdir(parents=True)
    shutil.copytree(whole, tmp_path / "runs" / "deeper" / "one")
    return tmp_path / "runs"


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    found = json.loads(plugrad("ls", folder, "--json", code=0).stdout)
    return {each["path"].removeprefix(f"{folder}/"): each for each in found}


def test_a_run_has_a_line(folder: Path) -> None:
    summary = json.loads((folder / "deeper/one/summary.json").read_text())
    (line,) = listed(folder).values()
    assert (line["algorithm"], line["env"], line["backend"], line["seed"]) == (
        "ppo",
        "CartPole-v1",
        "numpy",
        3,
    )
    assert (line["iterations"], line["timesteps"]) == (summary["iterations"], summary["timesteps"])
    assert (line["last_return"], line["best_return"]) == (summary["return_mean"], summary["best_return_mean"])
    assert line["state"] == "stopped at 256 timesteps"
    text = plugrad("ls", folder, code=0).stdout
    (row,) = [each for each in text.splitlines() if "deeper/one" in each]
    assert all(word in row for word in ("ppo", "CartPole-v1", f"{summary['iterations']}", "stopped at 256"))


def test_the_newest_run_comes_first(folder: Path, whole: Path) -> None:
    for name, when in (("b", 2e9), ("a", 1e9), ("c", 1.5e9)):
        run = Path(shutil.copytree(whole, folder / name))
        for file in ("config.toml", "metrics.jsonl"):
            os.utime(run / file, (when, when))
    assert [*listed(folder)] == ["b", "deeper/one", "c", "a"]


def test_a_run_says_that_it_goes_on_and_then_that_it_has_no_end(folder: Path) -> None:
    process = start(
        "train", "ppo", "CartPole-v1", *TINY, FOR_EVER, "--stop-reward=inf", "--out", folder / "goes"
    )
    wait_for_iterations(folder / "goes", process, 60)
    line = listed(folder)["goes"]
    assert line["state"] == "training"
    assert line["best_return"] >= line["last_return"] > 0
    process.kill()
    process.wait()
    assert listed(folder)["goes"]["state"] == "no end: failed or killed"


def test_an_end_of_before_is_none_of_a_run_that_went_on(folder: Path) -> None:
    metrics = folder / "deeper/one/metrics.jsonl"
    row = json.loads(metrics.read_text().splitlines()[-1])
    row |= {"training_iteration": row["training_iteration"] + 1, "env_runners/episode_return_mean": 1e6}
    metrics.write_text(metrics.read_text() + json.dumps(row) + '\n{"training_')
    line = listed(folder)["deeper/one"]
    assert line["state"] == "no end: failed or killed"
    assert (line["iterations"], line["last_return"]) == (row["training_iteration"], 1e6)


def test_where_nothing_is_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "runs is no folder" in plugrad("ls", code=2).stderr
    assert "no run below" in plugrad("ls", ".", code=0).stdout
    assert plugrad("ls", ".", "--json", code=0).stdout == "[]\n"


ODD_SETTINGS = [
    "",
    "algorithm = [1]\nenvironment = 3",
    'algorithm = "\\u001b[2J[red]x"\n[environment]\nenv = "a\\r\\nb"\n[debugging]\nseed = true',
    f'algorithm = "{"x" * 100_000}"\n[debugging]\nseed = {"9" * 4000}',
    "not toml [",
    "a = " + "[" * 100_000,
]


@pytest.mark.parametrize("text", ODD_SETTINGS, ids=range(len(ODD_SETTINGS)))
def test_odd_settings_are_one_line_and_steer_no_terminal(folder: Path, whole: Path, text: str) -> None:
    (Path(shutil.copytree(whole, folder / "odd")) / "config.toml").write_text(text)
    assert {*listed(folder)} == {"odd", "deeper/one"}
    output = plugrad("ls", folder, code=0).output
    assert "\x1b" not in output
    assert "\r" not in output
    assert len(output.splitlines()) < 12
    assert max(map(len, output.splitlines())) < 1000


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl"])
@pytest.mark.parametrize("text", ["{", "[1]", '{"iterations": NaN, "best_return_mean": "x"}', "{}\n", "\x00"])
def test_odd_files_are_said_and_hide_no_other_run(folder: Path, whole: Path, name: str, text: str) -> None:
    (Path(shutil.copytree(whole, folder / "odd")) / name).write_text(text)
    found = listed(folder)
    assert found["deeper/one"]["iterations"] > 0
    assert found["odd"]["state"]


def test_what_is_no_file_makes_nobody_wait(folder: Path, whole: Path) -> None:
    for name in ("config.toml", "metrics.jsonl", "summary.json", "train.lock"):
        run = Path(shutil.copytree(whole, folder / name))
        (run / name).unlink()
        os.mkfifo(run / name)
    found = listed(folder)
    assert "is not a regular file" in found["metrics.jsonl"]["state"]
    assert found["train.lock"]["state"].startswith("stopped at 256")
    assert len(found) == 5


def test_links_lead_nowhere(folder: Path, whole: Path) -> None:
    (folder / "link").symlink_to(whole.parent)
    (folder / "loop").symlink_to(folder)
    assert [*listed(folder)] == ["deeper/one"]


def test_a_plugin_is_not_loaded(folder: Path) -> None:
    config = folder / "deeper/one/config.toml"
    config.write_text(config.read_text().replace('algorithm = "ppo"', 'algorithm = "evil.py"'))
    assert listed(folder)["deeper/one"]["algorithm"] == "evil.py"
