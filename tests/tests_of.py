"""Which tests pass through a source file: a table that coverage.py made, and the options of pytest that use it.

    pytest --tests-of=core/plugrad/optimizers.py             # the tests that pass through a function of it
    pytest --tests-of=core/plugrad/optimizers.py::Adam.step  # through this one
    pytest --changed-since=main --within=100                 # of what changed: 100 seconds of them, and changed tests

The most specific tests come first: those that pass through the fewest files. `tests/trace_tests.py` makes the table,
`tests_of.json.xz`; its head says on which commit. It may be older than the code: a file that it does not have is said,
and a function that it does not have has the tests of its file.
"""

import ast
import json
import lzma
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("tests_of.json.xz")
SOURCES = ("core", "backends", "plugins")
TEST_FILES = r"tests/(core|backends|plugins)/test_\w+\.py"
Changes: TypeAlias = dict[str, set[str] | None]
"""`{source file: its changed functions}`; None: all."""


@dataclass
class Table:
    """Which tests pass through which functions.

    Args:
        commit: what was checked out when it was made, with the date.
        seconds: `{test function: how long its cases took}`, such as "tests/core/test_gru.py::test_step".
        passing: `{source file: {function: tests}}`; tests are bits of a number, in the order of `seconds`.
    """

    commit: str
    seconds: dict[str, float] = field(default_factory=dict)
    passing: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = TABLE) -> "Table":
        """The table of the project, or another one."""
        found = json.loads(lzma.decompress(path.read_bytes()))
        files = found["passing"].items()
        passing = {file: {name: int(bits, 16) for name, bits in each.items()} for file, each in files}
        return cls(found["commit"], found["seconds"], passing)

    def write(self, path: Path = TABLE) -> None:
        """Make the file, or replace it."""
        files = sorted(self.passing.items())
        passing = {file: {name: f"{bits:x}" for name, bits in sorted(each.items())} for file, each in files}
        text = json.dumps({"commit": self.commit, "seconds": self.seconds, "passing": passing}, indent=0)
        path.write_bytes(lzma.compress(text.encode(), preset=9))

    def record(self, seconds: Mapping[str, float], reached: Mapping[tuple[str, str], Iterable[str]]) -> None:
        """Put in what tests were seen to pass through; what was known of these tests goes.

        Args:
            seconds: of each test that was run.
            reached: `{(source file, function): tests}`; a test file alone stands for all its tests that were run.
        """
        self.seconds |= seconds
        tests = {name: 1 << n for n, name in enumerate(self.seconds)}
        of_file: defaultdict[str, int] = defaultdict(int)
        for name in seconds:
            of_file[name.partition("::")[0]] |= tests[name]
        others = ~sum(tests[name] for name in seconds)
        known = {
            (file, name): bits & others for file, each in self.passing.items() for name, bits in each.items()
        }
        for place, names in reached.items():
            for each in names:
                bits = tests.get(each, 0) if "::" in each else of_file[each]
                known[place] = known.get(place, 0) | bits
        self.passing = {}
        for (file, name), bits in known.items():
            if bits:
                self.passing.setdefault(file, {})[name] = bits

    def tests_of(self, path: str, functions: Iterable[str] | None = None) -> list[str]:
        """The tests that pass through a file or any of these functions, the most specific first.

        A function that the table does not have has the tests of its file; a file that it does not have has none.
        """
        known = self.passing.get(path, {})
        asked = set(known) if functions is None else set(functions)
        bits = 0
        for each in known if asked - set(known) else asked:
            bits |= known[each]
        specific = self.most_specific_first()
        return sorted(self._names(bits), key=specific.__getitem__)

    def within(self, tests: Iterable[str], seconds: float) -> list[str]:
        """The first of these tests that took no longer together."""
        kept: list[str] = []
        for name in tests:
            seconds -= self.seconds[name]
            if seconds < 0:
                break
            kept.append(name)
        return kept

    def most_specific_first(self) -> dict[str, tuple[int, float, str]]:
        """Keys to sort tests by: how many source files they pass through, their seconds, their names."""
        files: defaultdict[str, int] = defaultdict(int)
        for functions in self.passing.values():
            bits = 0
            for each in functions.values():
                bits |= each
            for name in self._names(bits):
                files[name] += 1
        return {name: (files[name], seconds, name) for name, seconds in self.seconds.items()}

    def _names(self, bits: int) -> list[str]:
        return [name for name, bit in zip(self.seconds, reversed(f"{bits:b}"), strict=False) if bit == "1"]


def functions_of(text: str) -> dict[int, str]:
    """`{line: function}` of the lines that run when a function does; of functions within others, the inner one."""
    lines: dict[int, str] = {}

    def visit(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = f"{outer}{getattr(child, 'name', '')}"
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                lines.update(dict.fromkeys(range(child.body[0].lineno, (child.end_lineno or 0) + 1), name))
            visit(child, f"{name}." if isinstance(child, ast.FunctionDef | ast.ClassDef) else outer)

    visit(ast.parse(text), "")
    return lines


def changes_since(commit: str, root: Path = ROOT) -> Changes:
    """What differs from where the branch left a commit: files, and of sources their functions.

    Raises:
        subprocess.CalledProcessError: git does not know the commit.
    """

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    changes: Changes = dict.fromkeys(git("ls-files", "--others", "--exclude-standard"))
    functions, touched = dict[int, str](), set[str]()
    options = ("--merge-base", "--no-renames", "--diff-filter=d", "-U0", "--no-color", "--no-ext-diff")
    for line in git("diff", *options, commit):
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
            functions = functions_of((root / path).read_text()) if path.endswith(".py") else {}
            changes[path] = touched = set()
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, number = int(hunk[1]), int(hunk[2] or 1)
            touched |= {functions.get(each, "") for each in range(first, first + max(number, 1))}
    return changes


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("the tests of a file")
    group.addoption(
        "--tests-of",
        action="append",
        default=[],
        metavar="FILE[::FUNCTION]",
        help="run those that pass through it",
    )
    group.addoption(
        "--changed-since", metavar="COMMIT", help="run those that pass through what differs from it"
    )
    group.addoption(
        "--within",
        type=float,
        metavar="SECONDS",
        help="of these, the most specific that took no longer together",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the files of the chosen tests alone, unless others are asked for."""
    asked, commit = config.getoption("tests_of"), config.getoption("changed_since")
    if not asked and commit is None:
        return
    changes: Changes = {}
    for each in asked:
        path, _, function = each.partition("::")
        known = changes.setdefault(path, {function} if function else None)
        if known is not None and function:
            known.add(function)
    if commit is not None:
        try:
            changes |= changes_since(commit)
        except subprocess.CalledProcessError as error:
            raise pytest.UsageError(f"--changed-since={commit}: {error.stderr.strip()}") from None
    table = Table.read()
    chosen = Chosen(table, changes)
    if asked and not chosen.tests:
        raise pytest.UsageError(
            f"no test passes through {', '.join(asked)} in tests/{TABLE.name}, which was made of {table.commit}. "
            "After a new file: python tests/trace_tests.py TESTS"
        )
    chosen.keep(config.getoption("within"))
    config.pluginmanager.register(chosen)
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args[:] = [str(config.rootpath / each) for each in chosen.files()]


class Chosen:
    """The tests that pass through what changed, and changed test files.

    Args:
        table: which tests pass through what.
        changes: of which files, of which functions.
    """

    def __init__(self, table: Table, changes: Changes) -> None:
        self._table, self._order = table, table.most_specific_first()
        sources = [path for path in changes if path.startswith(SOURCES) and path.endswith(".py")]
        self.unknown = sorted(path for path in sources if path not in table.passing)
        """Changed sources that the table does not have."""
        self.whole = sorted(path for path in changes if re.fullmatch(TEST_FILES, path))
        """Test files of which all tests are taken."""
        self.tests = {name for path in sources for name in table.tests_of(path, changes[path])}
        """Test functions, by name."""
        self._number = len(self.tests)

    def keep(self, seconds: float | None) -> None:
        """Of the tests that pass through something, only the most specific, as many as took so long together."""
        if seconds is not None:
            tests = sorted(self.tests, key=self._order.__getitem__)
            self.tests = set(self._table.within(tests, seconds))

    def files(self) -> list[str]:
        """Where they stand, without what is no longer there."""
        files = {*self.whole, *(name.partition("::")[0] for name in self.tests)}
        return sorted(file for file in files if (ROOT / file).exists())

    def pytest_report_header(self) -> list[str]:
        """How many of how many, and what the table does not have."""
        lines = [
            f"chosen: {len(self.tests)} of {self._number} tests that pass there (table of {self._table.commit})"
            + "".join(f", {each}" for each in self.whole)
        ]
        if self.unknown:
            lines.append(f"in no line of tests/{TABLE.name}: {', '.join(self.unknown)}")
        return lines

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Where nothing changed, no test is no failure."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not self.files():
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the others; files and in them tests in the order of how specific they are."""
        names = {item: item.nodeid.partition("[")[0] for item in items}
        kept = [
            item for item in items if names[item] in self.tests or item.nodeid.startswith(tuple(self.whole))
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        last = (len(self._table.passing), 0.0, "")
        order = {item: self._order.get(names[item], last) for item in kept}
        first: dict[Path, tuple[int, float, str]] = {}
        for item in kept:
            first[item.path] = min(order[item], first.get(item.path, order[item]))
        items[:] = sorted(kept, key=lambda item: (first[item.path], order[item]))
