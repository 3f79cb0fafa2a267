"""A skip fails unless its reason is allowed; what is installed and does not import fails, too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

SKIPPING = """
# The tests of another pytest. The tests below assert what it says of each.
import pytest
import needs

def test_of_an_installed_extra_that_is_broken():
    needs.extra("broken")

def test_by_importorskip():
    pytest.importorskip("of_nobody")

@pytest.mark.skip(reason="some day")
def test_for_a_reason_of_its_own():
    pass

@pytest.fixture
def unavailable():
    pytest.skip("not today")

def test_by_its_fixture(unavailable):
    pass

def test_of_a_backend_that_is_asked_for_and_broken():
    needs.backend("tf2")

def test_of_an_extra_that_is_not_there():
    needs.extra("of_nobody")

def test_of_a_backend_that_is_not_asked_for():
    needs.backend("torch")

@pytest.mark.xfail(reason="known", strict=True)
def test_that_is_expected_to_fail():
    assert False
"""
WHOLE_FILE = 'import pytest\npytest.skip("all of it", allow_module_level=True)\n'


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of such tests."""
    folder = tmp_path_factory.mktemp("skips")
    (folder / "test_some.py").write_text(SKIPPING)
    (folder / "test_whole.py").write_text(WHOLE_FILE)
    for broken in ("broken", "tensorflow"):
        (folder / f"{broken}.py").write_text("import a_dependency_that_is_missing\n")
    return run(folder, PLUGRAD_TEST_EXTRAS="")


def run(folder: Path, **environment: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "skips",
        "-p",
        "no:cacheprovider",
        "-rA",
        "--continue-on-collection-errors",
    ]
    variables = {"PYTHONPATH": f"{folder}{os.pathsep}{TESTS}", "PLUGRAD_TEST_BACKENDS": "tf2", **environment}
    done = subprocess.run(command, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, text=True)
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "test_of_an_installed_extra_that_is_broken",
        "test_by_importorskip",
        "test_for_a_reason_of_its_own",
        "test_by_its_fixture",
        "test_of_a_backend_that_is_asked_for_and_broken",
    ],
)
def test_a_skip_that_is_not_allowed_fails(said: str, name: str) -> None:
    assert f"FAILED test_some.py::{name}" in said or f"ERROR test_some.py::{name}" in said


def test_a_file_that_is_skipped_as_a_whole_fails(said: str) -> None:
    assert "ERROR test_whole.py" in said
    assert "tests/skips.py does not allow the reason: all of it" in said


def test_what_an_environment_may_lack_skips_and_the_rest_is_as_ever(said: str) -> None:
    assert "2 skipped, 1 xfailed" in said
    assert "PLUGRAD_TEST_BACKENDS does not ask for torch" in said
    assert "not installed: of_nobody" in said


@pytest.mark.parametrize("demanded", ["1", "PIL of_nobody"])
def test_where_an_extra_must_be_a_missing_one_fails(demanded: str, tmp_path: Path) -> None:
    (tmp_path / "test_extra.py").write_text('import needs\n\ndef test_it():\n    needs.extra("of_nobody")\n')
    assert "ModuleNotFoundError: No module named 'of_nobody'" in run(tmp_path, PLUGRAD_TEST_EXTRAS=demanded)
