"""Make the table of `tests_of.py`: run the tests under coverage.py and write down which functions each passes through.

    tox -e table                                     # every test; an hour of one core
    python tests/trace_tests.py TESTS                # these anew; the rest of the table stays
    python tests/trace_tests.py --data FOLDER        # of data that are there

Tests of the core run without a framework, the others on torch, and on the other two what passes through their own
backend. Of processes that a test starts there is what they did until they ended by themselves. Laws that are tried
thousands of times run with few examples.

It is a plugin of pytest, too: it tells coverage.py which test runs.
"""

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from ran import RAN, read
from tests_of import ROOT, SOURCES, TABLE, Table, functions_of

SECONDS = 5.0
"""As soon as the cases of a test took as long together, no other one is called."""
_seconds: defaultdict[str, float] = defaultdict(float)
CONTEXT = "PLUGRAD_TRACED_TEST"
SETTINGS = """[run]
core = ctrace
parallel = true
data_file = {folder}/coverage
context = ${{{context}-}}
source =
    {sources}
patch = _exit
disable_warnings = no-data-collected,module-not-measured,module-not-imported,couldnt-parse
"""


def pytest_collection() -> None:
    """A law is tried with few examples."""
    from hypothesis import settings

    settings.register_profile("traced", settings.default, max_examples=5)
    settings.load_profile("traced")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call no more cases of a test that has taken long: they hardly pass through anything else."""
    return True if _seconds[pyfuncitem.nodeid.partition("[")[0]] > SECONDS else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what the calls of a test take; not what is made for them: the first case is called in any case."""
    if report.when == "call":
        _seconds[report.nodeid.partition("[")[0]] += report.duration


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What runs now is of this test."""
    _switch(item.nodeid.partition("[")[0])
    try:
        return (yield)
    finally:
        _switch("")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """What is made for more than one test is of all tests of the file."""
    before = os.environ[CONTEXT]
    if fixturedef.scope != "function":
        _switch(before.partition("::")[0])
    try:
        return (yield)
    finally:
        _switch(before)


def _switch(context: str) -> None:
    """Also for the processes that are started from now on."""
    from coverage import Coverage

    os.environ[CONTEXT] = context
    running = Coverage.current()
    assert running is not None
    running.switch_context(context)


def trace(folder: Path, backend: str, tests: Sequence[str]) -> int:
    """Run tests, write into a folder what they pass through, and how long they took; the exit status of pytest."""
    (folder / backend).mkdir(parents=True, exist_ok=True)
    settings = folder / backend / "coveragerc"
    sources = "\n    ".join(str(ROOT / each) for each in SOURCES)
    settings.write_text(SETTINGS.format(folder=folder / backend, context=CONTEXT, sources=sources))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in (*SOURCES, "tests")),
        "COVERAGE_PROCESS_START": str(settings),
        "PLUGRAD_TEST_BACKENDS": backend.replace("none", ""),
        "PLUGRAD_TEST_REPORT": str(folder),
        CONTEXT: "",
    }
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "trace_tests",
        "-m",
        "not long and not author and not counts",
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, env=environment
    ).returncode


def add(table: Table, folder: Path) -> None:
    """Put into a table what data of coverage.py say; of the tests in it, what it said before goes."""
    from coverage import CoverageData
    from coverage.exceptions import DataError

    reached: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    """`{(file, function): tests, or whole test files}`"""
    functions_in: dict[str, dict[int, str]] = {}
    traced: dict[str, float] = {}
    for case in read(folder):
        if case.outcome in RAN:
            name = f"{case.file}::{case.function}"
            traced[name] = round(traced.get(name, 0.0) + case.seconds, 2)
    for path in sorted(folder.glob("*/coverage.*")):
        data = CoverageData(str(path))
        try:
            data.read()
        except DataError as error:  # of a process that was killed
            print(f"left out: {error}")
            continue
        for measured in data.measured_files():
            file = Path(measured).relative_to(ROOT).as_posix()
            if file not in functions_in:
                functions_in[file] = functions_of(Path(measured).read_text(encoding="utf-8"))
            functions = functions_in[file]
            for line, contexts in data.contexts_by_lineno(measured).items():
                if line in functions:
                    reached[file, functions[line]].update(contexts)
    table.record(traced, reached)


def main() -> int:
    """Zero if every test passed: the table is made in any case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tests", nargs="*", help="test files; without any, all of them")
    parser.add_argument(
        "--data", type=Path, help="make the table of the data of an earlier run, in this folder"
    )
    asked = parser.parse_args()
    commit = _git("log", "-1", "--format=%h, %cs")
    if _git("status", "--porcelain", *SOURCES):
        commit += ", with changes"
    # Of a part that is made anew the commit is not said: nothing is older than what the head says.
    table = Table.read() if TABLE.exists() and asked.tests else Table(commit)
    failed = False
    with TemporaryDirectory(prefix="traced-") as scratch:
        folder = asked.data or Path(scratch)
        if asked.data is None:
            tests = asked.tests or ["tests/core", "tests/backends", "tests/plugins"]
            core = [each for each in tests if each.startswith("tests/core")]
            others = [each for each in tests if each not in core]
            runs = [("none", core), *((backend, others) for backend in ("torch", "tf2", "jax"))]
            statuses = [trace(folder, backend, files) for backend, files in runs if files]
            failed = any(statuses)
        add(table, folder)
    table.write()
    print(
        f"{TABLE}: {len(table.seconds)} tests, {len(table.passing)} files, {TABLE.stat().st_size // 1024} kB"
    )
    return int(failed)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
