"""Runs of many iterations: what they keep in memory, and what a row of metrics costs."""

import csv
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import plugrad, tiny_run

from plugrad.cli.display import LiveTable
from plugrad.cli.metrics_files import SHORT_TABLE, MetricsFiles, read_rows
from plugrad.cli.progress import Goals, Progress

RETURN, EPISODES = "env_runners/episode_return_mean", "env_runners/num_episodes_lifetime"


def row(iteration: int, **more: float) -> dict[str, float]:
    numbers = {f"learners/default_policy/metric_{number}": iteration + 1e-3 * number for number in range(40)}
    counts = {"training_iteration": iteration, "num_env_steps_sampled_lifetime": 10 * iteration}
    return {**counts, **numbers, RETURN: float(iteration % 100), EPISODES: iteration, **more}


def write_rows(directory: Path, number: int, **more: float) -> None:
    with (directory / "metrics.jsonl").open("w") as file:
        file.writelines(json.dumps(row(iteration, **more)) + "\n" for iteration in range(1, number + 1))


def test_appended_rows_stay_in_no_memory(tmp_path: Path) -> None:
    files = MetricsFiles(tmp_path)
    for iteration in range(1, 1001):
        files.append(row(iteration))
    tracemalloc.start()
    try:
        for iteration in range(1001, 3001):
            files.append(row(iteration))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2000 * 20, "bytes for 2,000 rows, of which each had 7,200"
    assert len(read_rows(files.jsonl)) == 3000


def test_a_run_goes_on_without_its_rows_in_memory(tmp_path: Path) -> None:
    write_rows(tmp_path, 4_000)
    tracemalloc.start()
    try:
        files = MetricsFiles(tmp_path)
        files.truncate(3_990)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 2**20
    assert (files.history.best_trained, files.history.last) == (99.0, row(3_990))
    assert files.csv.read_bytes().count(b"\n") == 3_991


def test_the_memory_of_a_training_does_not_grow_with_its_iterations(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("watch.py").write_text(
        "import gc, sys\n"
        "from plugrad import hookimpl\n"
        "@hookimpl\n"
        "def iteration_ended(algorithm, results):\n"
        "    if algorithm.iteration in (100, 250):\n"
        "        gc.collect()\n"
        "        print(len(gc.get_objects()), sys.getallocatedblocks(), file=open('kept', 'a'))\n"
    )
    tiny_run(Path("run"), "CartPole-v1", "--plugin=watch.py", "--stop-timesteps=2000", "--stop-reward=inf")
    early, late = (tuple(map(int, line.split())) for line in Path("kept").read_text().splitlines())
    assert late[0] - early[0] < 15, "containers of 150 iterations: their rows alone would be as many"
    assert (late[1] - early[1]) / 150 < 4, "objects an iteration: a row has some 40 numbers"


def written(path: Path, append: Any) -> int:
    """How many bytes of a table an append writes: its growth, or the whole where it is written anew."""
    before = path.stat()
    append()
    after = path.stat()
    return after.st_size if after.st_ino != before.st_ino else after.st_size - before.st_size


def test_a_new_column_late_in_a_run_rewrites_no_table_and_is_in_it_at_the_end(tmp_path: Path) -> None:
    files = MetricsFiles(tmp_path)
    for iteration in range(1, SHORT_TABLE + 1):
        files.append(row(iteration))
    late = SHORT_TABLE + 1
    assert written(files.csv, lambda: files.append(row(late, late=1.0))) < 2000
    assert read_rows(files.jsonl)[-1]["late"] == 1.0
    files.complete()
    table = list(csv.DictReader(files.csv.open()))
    assert [line["late"] for line in table] == [""] * SHORT_TABLE + ["1.0"]
    assert [int(line["training_iteration"]) for line in table] == list(range(1, late + 1))


def test_a_late_column_enters_the_table_when_it_has_doubled_its_length(tmp_path: Path) -> None:
    files = MetricsFiles(tmp_path)
    for iteration in range(1, 2 * SHORT_TABLE):
        files.append(row(iteration, **({"late": 1.0} if iteration > SHORT_TABLE else {})))
    assert "late" not in files.csv.read_text().partition("\n")[0]
    files.append(row(2 * SHORT_TABLE))
    table = list(csv.DictReader(files.csv.open()))
    assert sum(line["late"] == "1.0" for line in table) == SHORT_TABLE - 1
    assert len(table) == 2 * SHORT_TABLE


def test_a_late_column_enters_the_table_when_a_run_goes_on(tmp_path: Path) -> None:
    files = MetricsFiles(tmp_path)
    for iteration in range(1, SHORT_TABLE + 2):
        files.append(row(iteration, **({"late": 1.0} if iteration > SHORT_TABLE else {})))
    again = MetricsFiles(tmp_path)
    again.truncate(SHORT_TABLE + 1)
    again.append(row(SHORT_TABLE + 2, late=2.0))
    assert [line["late"] for line in csv.DictReader(files.csv.open())][-2:] == ["1.0", "2.0"]


def test_a_run_of_an_older_version_goes_on_with_its_rows(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "CartPole-v1", "--stop-timesteps=24")
    (run / "metrics.csv").write_text("another,order\n1,2\n")
    plugrad("train", "--resume", run, "--quiet", "--stop-timesteps=32", code=0)
    rows, table = read_rows(run / "metrics.jsonl"), list(csv.DictReader((run / "metrics.csv").open()))
    assert [each["training_iteration"] for each in rows] == [1, 2, 3, 4]
    assert [int(each["training_iteration"]) for each in table] == [1, 2, 3, 4]


def test_what_a_failed_write_left_is_overwritten(tmp_path: Path) -> None:
    files = MetricsFiles(tmp_path)
    for iteration in (1, 2):
        files.append(row(iteration))
    for path in (files.jsonl, files.csv):  # a disk that is full takes a part of a line
        with path.open("a") as file:
            file.write('{"training_it')
    files.append(row(3))
    assert [each["training_iteration"] for each in read_rows(files.jsonl)] == [1, 2, 3]
    assert [line["training_iteration"] for line in csv.DictReader(files.csv.open())] == ["1", "2", "3"]


@pytest.mark.parametrize("number", [10, 49, 1000, 100_000])
def test_the_live_table_keeps_a_bounded_history(number: int) -> None:
    table = LiveTable("ppo", Goals(reward=None, timesteps=10**9))
    for iteration in range(number):
        table.show(
            Progress(iteration=iteration, timesteps=iteration, seconds=1.0, return_mean=float(iteration))
        )
    assert len(table._returns) <= 49
    assert table._returns[0] == 0.0
    assert table._returns[-1] >= 0.9 * (number - 1)


@pytest.mark.parametrize("late", [None, 500, 1500])
@pytest.mark.parametrize("last", [1400, 1600])
def test_a_table_that_is_written_while_rows_are_read_has_all_rows_and_columns(
    tmp_path: Path, late: int | None, last: int
) -> None:
    """A column that comes late, and one of rows that are dropped; the rows are those that were kept."""
    rows = [row(iteration, **({"late": 1.0} if iteration == late else {})) for iteration in range(1, 1701)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    files = MetricsFiles(tmp_path)
    files.truncate(last)
    kept = rows[:last]
    assert read_rows(files.jsonl) == kept
    assert files.history.last == kept[-1]
    with files.csv.open(newline="") as table:
        header, *lines = csv.reader(table)
    assert header == list(dict.fromkeys(name for each in kept for name in each))
    assert lines == [[str(each.get(name, "")) for name in header] for each in kept]
    files.append(row(last + 1))
    assert files.csv.read_bytes().count(b"\n") == last + 2
