"""The report that a run of pytest writes of itself, and what tests/ran.py says of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]

REPORTED = """
# The tests of another pytest. The tests below assert what is reported of each.
import pytest

@pytest.fixture(params=["torch", "tf2", "jax"])
def backend(request):
    return request.param

def test_on_all(backend):
    pass

@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_on_two(backend, mode):
    assert (backend, mode) != ("tf2", "compiled")

def test_on_none(backend):
    pass

def test_of_a_capability(backend):
    if backend == "jax":
        pytest.skip("jax has none")

def test_without_a_backend():
    pass

class TestGrouped:
    @pytest.fixture
    def broken(self):
        yield
        raise OSError

    def test_whose_fixture_fails(self, broken):
        pass
"""
LEAVING_OUT = "not on_none and not (on_two and jax)"


@pytest.fixture(scope="module", params=[False, True], ids=["one process", "two workers"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of such tests."""
    project = tmp_path_factory.mktemp("project")
    (project / "test_reported.py").write_text(REPORTED)
    workers = ["-p", "xdist", "-n", "2"] if request.param else []
    return run(project, "-k", LEAVING_OUT, *workers, PLUGRAD_TEST_REPORT=str(project / "report"))


def run(project: Path, *arguments: str, **variables: str) -> Path:
    """Where pytest in this folder was to report. One of its tests must fail, or all hid that the report did."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "run_report", "-p", "no:cacheprovider", *arguments]
    variables |= {"PYTHONPATH": str(TESTS), "TOX_ENV_NAME": "some", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=project, env=os.environ | variables, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1, done.stdout
    return project / "report"


def ran(folder: Path, *arguments: str) -> tuple[int, str]:
    """The status and the output of the script."""
    command = [sys.executable, str(TESTS / "ran.py"), str(folder), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def test_each_case_has_its_backend_and_its_outcome(folder: Path) -> None:
    (path,) = folder.iterdir()
    assert path.name.startswith("some-")
    cases: list[dict[str, Any]] = json.loads(path.read_text())
    assert {case["file"] for case in cases} == {"test_reported.py"}
    found = {(case["function"], case["parameters"]): (case["backend"], case["outcome"]) for case in cases}
    assert len(found) == len(cases) == 17
    assert found["test_on_all", "jax"] == ("jax", "passed")
    assert found["test_on_two", "torch-compiled"] == ("torch", "passed")
    assert found["test_on_two", "tf2-compiled"] == ("tf2", "failed")
    assert found["test_on_two", "jax-compiled"] == ("jax", "left out")
    assert found["test_on_none", "tf2"] == ("tf2", "left out")
    assert found["test_of_a_capability", "torch"] == ("torch", "passed")
    assert found["test_of_a_capability", "jax"] == ("jax", "skipped")
    assert found["test_without_a_backend", ""] == ("", "passed")
    assert found["TestGrouped::test_whose_fixture_fails", ""] == ("", "failed")
    assert all(
        (case["seconds"] == 0.0) == (case["outcome"] == "left out") for case in cases if case["seconds"] > 0
    )


def test_a_summary_counts_cases_and_functions(folder: Path) -> None:
    status, said = ran(folder)
    assert status == 0
    assert [*map(str.split, said.splitlines()[:2])] == [
        ["cases", "that", "ran,", "of", "how", "many", "torch", "tf2", "jax", "no", "backend"],
        ["test_reported.py", "4/5", "4/5", "1/5", "2/2"],
    ]
    assert said.splitlines()[2:] == [
        "functions for torch, tf2 and jax: 3",
        "  ran on all three: 1",
        "  ran on two: 1",
        "  ran on one: 0",
        "  ran on none: 1",
        "  on all three: 33.3 %",
        "    not on torch, tf2, jax: test_reported.py::test_on_none",
        "    not on jax: test_reported.py::test_on_two",
        "  not counted, since a backend lacks what they are about: 1",
    ]


def test_less_than_was_asked_for_is_an_error(folder: Path) -> None:
    assert ran(folder, "--at-least", "33")[0] == 0
    assert ran(folder, "--at-least", "34")[0] == 1


CLAIMS = """
["it works"]
"test_reported.py::test_on_all" = ["torch", "tf2", "jax"]
"test_reported.py::test_on_two[eager]" = ["torch", "tf2"]
"test_reported.py::test_without_a_backend" = []
["it was left out"]
"test_reported.py::test_on_all" = ["torch"]
"test_reported.py::test_on_two" = ["torch", "jax"]
["it failed"]
"test_reported.py::test_on_two" = ["torch", "tf2"]
["it was skipped"]
"test_reported.py::test_of_a_capability" = ["tf2", "jax"]
["its test is gone"]
"test_reported.py::test_that_is_gone" = []
"""


def test_a_claim_is_shown_by_tests_that_passed_where_it_is_claimed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "claims.toml").write_text(CLAIMS)
    status, said = ran(folder, "--claims", str(tmp_path / "claims.toml"))
    assert said.partition("claims\n")[2].splitlines() == [
        "  shown: it works",
        "  NOT SHOWN: it was left out",
        "    test_reported.py::test_on_two did not pass on jax",
        "  NOT SHOWN: it failed",
        "    test_reported.py::test_on_two did not pass on tf2",
        "  NOT SHOWN: it was skipped",
        "    test_reported.py::test_of_a_capability did not pass on jax",
        "  NOT SHOWN: its test is gone",
        "    test_reported.py::test_that_is_gone did not pass",
    ]
    assert status == 1
    (tmp_path / "claims.toml").write_text(CLAIMS.partition('["it was left out"]')[0])
    assert ran(folder, "--claims", str(tmp_path / "claims.toml"))[0] == 0


@pytest.mark.parametrize("outcome", ["passed", "failed", "skipped", "left out"])
@pytest.mark.parametrize("percentage", ["0", "100"])
def test_the_status_is_that_of_claims_and_of_the_percentage(
    tmp_path: Path, outcome: str, percentage: str
) -> None:
    reported: dict[str, Any] = {"file": "tests/test_made.py", "parameters": "", "seconds": 1.0}
    cases = [
        reported | {"function": "test_shown", "backend": "torch", "outcome": outcome},
        *(
            reported | {"function": "test_of_three", "backend": each, "outcome": "passed", "parameters": each}
            for each in ("torch", "tf2", "jax")
        ),
    ]
    (tmp_path / "made.json").write_text(json.dumps(cases))
    claims = tmp_path / "claims.toml"
    claims.write_text('["it works"]\n"tests/test_made.py::test_shown" = ["torch"]\n')
    assert ran(tmp_path, "--at-least", percentage)[0] == 0
    status, said = ran(tmp_path, "--at-least", percentage, "--claims", str(claims))
    assert status == (0 if outcome == "passed" else 1)
    assert ("NOT SHOWN" in said) == (outcome != "passed")


def test_a_claim_that_failed_on_any_backend_it_is_made_for_is_not_shown(tmp_path: Path) -> None:
    cases = [
        {
            "file": "tests/test_made.py",
            "function": "test_it",
            "parameters": f"{backend}-{mode}",
            "backend": backend,
            "outcome": "failed" if (backend, mode) == ("tf2", "compiled") else "passed",
        }
        for backend in ("torch", "tf2", "jax")
        for mode in ("eager", "compiled")
    ]
    (tmp_path / "made.json").write_text(json.dumps(cases))
    for claimed, status in (
        ('test_it" = ["torch", "jax"]', 0),
        ('test_it" = ["torch", "tf2"]', 1),
        ('test_it[eager]" = ["tf2"]', 0),
        ('test_it" = []', 1),
        ('test_it" = ["toy"]', 1),
    ):
        (tmp_path / "claims.toml").write_text(f'["it works"]\n"tests/test_made.py::{claimed}\n')
        assert ran(tmp_path, "--claims", str(tmp_path / "claims.toml"))[0] == status, claimed


def test_a_case_that_one_environment_ran_and_another_left_out_has_run(tmp_path: Path) -> None:
    (tmp_path / "test_reported.py").write_text(REPORTED)
    for taken in ("torch", "tf2 or jax"):
        run(tmp_path, "-k", f"(on_all and ({taken})) or fixture_fails", PLUGRAD_TEST_REPORT="report")
    assert len([*(tmp_path / "report").iterdir()]) == 2
    assert "ran on all three: 1\n" in ran(tmp_path / "report")[1]


def test_a_report_that_cannot_be_written_changes_no_result(tmp_path: Path) -> None:
    (tmp_path / "test_reported.py").write_text("def test_it(): pass\n\ndef test_fails(): assert False\n")
    (tmp_path / "report").write_text("a file\n")
    assert run(tmp_path, PLUGRAD_TEST_REPORT="report").is_file()


def test_a_pytest_that_a_test_starts_reports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_reported.py").write_text(
        "import os\n\ndef test_fails_where_the_variable_is_gone(): assert 'PLUGRAD_TEST_REPORT' in os.environ\n"
    )
    assert len([*run(tmp_path, PLUGRAD_TEST_REPORT="report").iterdir()]) == 1


def test_without_the_variable_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "test_reported.py").write_text("def test_fails(): assert False\n")
    assert not run(tmp_path).exists()


def test_a_folder_without_a_report_is_an_error(tmp_path: Path) -> None:
    status, said = ran(tmp_path)
    assert status == 2
    assert "has no report" in said
