"""Each test says by its own text what it asserts: in it, or by a helper whose name says so."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))
ASSERTING = ("assert", "raises", "warns", "fail", "run_state_machine_as_test")
"""Parts of names of functions that assert."""


def asserts(test: ast.FunctionDef) -> bool:
    """Whether it has an assertion, calls what asserts, or a process that must end well."""
    found = list(ast.walk(test))
    calls = [each for each in found if isinstance(each, ast.Call)]
    return (
        any(isinstance(each, ast.Assert) for each in found)
        or any(part in ast.unparse(call.func) for call in calls for part in ASSERTING)
        or any(keyword.arg == "check" for call in calls for keyword in call.keywords)
    )


@pytest.mark.parametrize("folder", sorted({path.parent.name for path in FILES}))
def test_every_test_asserts(folder: str) -> None:
    silent = [
        f"{path.relative_to(TESTS)}:{each.lineno} {each.name}"
        for path in FILES
        if path.parent.name == folder
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_") and not asserts(each)
    ]
    assert not silent


def test_a_test_without_an_assertion_is_found() -> None:
    silent, loud = ast.parse("def test_a():\n    f()\ndef test_b():\n    assert_equal(1, 1)").body
    assert isinstance(silent, ast.FunctionDef)
    assert isinstance(loud, ast.FunctionDef)
    assert [asserts(silent), asserts(loud)] == [False, True]
