"""`pytest --tests-of` runs the tests that pass through a file, as a table made by coverage says."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests_of import TABLE, Table, changes_since, functions_of

ROOT = Path(__file__).parents[2]
TEXT = '''"""Text."""

LIMIT = 3


class Counter:
    step: int = 1

    def add(self, x):
        """Add."""
        def twice():
            return 2 * x
        return twice() + self.step


def zero():
    return [0
            for _ in "ab"]
'''


def test_a_line_is_of_the_last_function_around_it():
    assert functions_of(TEXT) == {
        10: "Counter.add",
        11: "Counter.add",
        12: "Counter.add.twice",
        13: "Counter.add",
        17: "zero",
        18: "zero",
    }


@pytest.fixture
def table():
    seconds = {"tests/core/test_a.py::test_all": 2.0, "tests/core/test_b.py::test_one": 0.1}
    seconds["tests/core/test_b.py::test_none"] = 0.1
    passing = {"core/plugrad/a.py": {"f": 0b01, "g": 0b11}, "core/plugrad/b.py": {"h": 0b01}}
    return Table("a commit", seconds, passing)


def test_a_table_comes_back_as_it_was(table, tmp_path):
    table.write(tmp_path / "table")
    assert Table.read(tmp_path / "table") == table


def test_tests_that_are_traced_anew_leave_the_others_as_they_were(table):
    table.record(
        {"tests/core/test_b.py::test_one": 0.2, "tests/core/test_b.py::test_new": 0.3},
        {
            ("core/plugrad/b.py", "h"): {"tests/core/test_b.py::test_one"},
            ("core/plugrad/c.py", "k"): {"tests/core/test_b.py"},
        },
    )
    one, new = "tests/core/test_b.py::test_one", "tests/core/test_b.py::test_new"
    assert table.seconds[one] == 0.2
    assert table.tests_of("core/plugrad/a.py") == ["tests/core/test_a.py::test_all"]
    assert {*table.tests_of("core/plugrad/b.py")} == {"tests/core/test_a.py::test_all", one}
    assert {*table.tests_of("core/plugrad/c.py", ["k"])} == {one, new}
    table.record({one: 0.2, new: 0.3}, {})
    assert "core/plugrad/c.py" not in table.passing


def test_the_most_specific_come_first(table):
    both = ["tests/core/test_b.py::test_one", "tests/core/test_a.py::test_all"]
    assert table.tests_of("core/plugrad/a.py") == both
    assert table.tests_of("core/plugrad/a.py", ["g"]) == both
    assert table.tests_of("core/plugrad/a.py", ["f"]) == both[1:]


def test_a_new_function_has_the_tests_of_its_file_and_a_new_file_none(table):
    assert table.tests_of("core/plugrad/a.py", ["f", "new"]) == table.tests_of("core/plugrad/a.py")
    assert table.tests_of("core/plugrad/new.py") == []


def test_what_changed_since_a_commit_is_files_and_their_functions(tmp_path):
    def git(*arguments):
        author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True)

    for name in ("one.py", "two.py", "gone.py"):
        (tmp_path / name).write_text(TEXT)
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    assert changes_since("main", tmp_path) == {}
    (tmp_path / "one.py").write_text(
        TEXT.replace("2 * x", "3 * x").replace('for _ in "ab"', 'for _ in "abc"')
    )
    (tmp_path / "two.py").write_text(TEXT.replace("LIMIT = 3", "LIMIT = 4"))
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text(TEXT)
    changes = {"one.py": {"Counter.add.twice", "zero"}, "two.py": {""}, "new.py": None}
    assert changes_since("main", tmp_path) == changes
    git("add", ".")
    git("commit", "-q", "-m", "more")
    assert changes_since("main~1", tmp_path) == changes | {"new.py": {"", *functions_of(TEXT).values()}}


def run(*options):
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_option_collects_the_tests_of_a_file():
    status, said = run("--tests-of=core/plugrad/action_masks.py")
    assert status == 0, said
    assert "tests/core/test_action_masks.py::" in said
    table = Table.read()
    chosen = {*table.tests_of("core/plugrad/action_masks.py")}
    names = [line.partition("[")[0] for line in said.splitlines() if line.startswith("tests/")]
    assert {*names} <= chosen


def test_a_file_that_the_table_does_not_have_is_said():
    status, said = run("--tests-of=core/plugrad/nowhere.py")
    assert status != 0
    assert "no test passes through core/plugrad/nowhere.py" in said
    assert f"{TABLE.name}, which was made of {Table.read().commit}" in said


def test_the_table_is_small_and_has_most_files():
    assert TABLE.stat().st_size < 300_000
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("core/plugrad/**/*.py")}
    files = {path for path in files if functions_of((ROOT / path).read_text()) and "templates" not in path}
    known = Table.read().passing
    assert len(files & {*known}) / len(files) > 0.5, sorted(files - {*known})
