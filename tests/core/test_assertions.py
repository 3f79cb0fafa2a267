"""Each test says by its own text what it asserts: in it, or by a helper whose name says so."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))
ASSERTING = ("assert", "raises", "warns", "fail", "run_state_machine_as_test", "wait_until")
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


CLOCKS = re.compile(
    r"\b(?:perf_counter|monotonic|process_time|thread_time)(?:_ns)?\b|\btime\.time(?:_ns)?\(|\btimeit\b"
)
CLOCKS_ALLOWED = {
    "waiting.py": "the one limit, which ends what hangs",
    "wire.py": "a slow wire delivers late",
    "cases/run.py": "prints how long programs took",
    "mutant_runs.py": "writes down how long mutants took",
    "group/test_faults.py": "draws moments of an update at which learners are killed",
    "group/test_two_machines.py": "prints how far a long test is",
    "core/test_collective_mutants.py": "a collective that is wrong, which gives up late",
    "core/test_assertions.py": "this list",
    "portability/bugs/random_numbers.py": "losses that are wrong, which read a clock",
}


def test_no_test_asserts_on_a_clock() -> None:
    """A busy machine makes no test fail: tests count calls, bytes and events, and `waiting` ends what hangs."""
    found = {
        str(path.relative_to(TESTS)): match[0]
        for path in TESTS.rglob("*.py")
        if (match := CLOCKS.search(path.read_text()))
    }
    assert found.keys() - CLOCKS_ALLOWED.keys() == set(), "count calls, or wait by tests/waiting.py"
    assert CLOCKS_ALLOWED.keys() - found.keys() == set(), "these read no clock any more"


@pytest.mark.parametrize(
    "code",
    [
        "assert time.monotonic() - begun < 3",
        "assert perf_counter() < end",
        "start = time.time()",
        "import timeit",
    ],
)
def test_a_clock_is_found(code: str) -> None:
    assert CLOCKS.search(code)
