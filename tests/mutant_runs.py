"""Run the tests that could notice a mistake, on a copy of the checkout that has it."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from time import monotonic

from mutant_sites import Site
from tests_of import TABLE, Table, functions_of

KILLED, SURVIVED, UNFINISHED, NO_TESTS = "killed", "survived", "unfinished", "no tests"
ROOTS = ("core", "backends", "plugins")
PYTEST = ("-m", "pytest", "-x", "-v", "--tb=no", "-rfE", "--durations=0", "-p", "no:cacheprovider")
PASSED = (0, 5)
"""Exit statuses of pytest: all tests passed; there was none to run."""
FIRST_S = 20.0
"""So long, without a mistake, takes the first part of the tests: most mutants die in it."""
HANGING_S = 90.0
"""A test that runs as long hangs; if it does so alone, too, and passes without the mistake, it has noticed it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Args:
        kind: `KILLED`; `SURVIVED`; `UNFINISHED`: all tests that were run by the end of the time passed; `NO_TESTS`:
            none were found.
        by: the test that failed or hung, the file that did not import, or that pytest itself failed.
        seconds: how long its tests ran.
    """

    kind: str
    by: str
    seconds: float


class Trials:
    """Trials of mutants, each in a new copy of a checkout.

    Args:
        root: the checkout.
        scratch: an empty folder for the copies.
        backend: what the tests of backends run on; those of a changed backend run on that one.
        limit_s: for all tests of one mutant.
        hanging_s: for one test.
        only_traced: run no tests but those that the table names.

    Raises:
        RuntimeError: tests in a copy would import plugrad from elsewhere.
    """

    def __init__(
        self,
        root: Path,
        scratch: Path,
        backend: str,
        limit_s: float,
        hanging_s: float = HANGING_S,
        only_traced: bool = False,
    ) -> None:
        self._root, self._scratch, self._backend, self._limit_s = root, scratch, backend, limit_s
        self._hanging_s, self._only_traced = hanging_s, only_traced
        self._table = (
            Table.read(root / "tests" / TABLE.name) if (root / "tests" / TABLE.name).exists() else None
        )
        self._unchanged = self._copy()
        self._passing: set[tuple[str, str]] = set()
        """Tests, with the backends under test, that pass without a mistake."""
        self._failing: set[tuple[str, str]] = set()
        """Those that do not, which prove nothing."""
        program = "import plugrad; print(plugrad.__file__)"
        _, found = self._python(self._unchanged, "", ("-c", program), None)
        if not Path(found.strip()).is_relative_to(self._unchanged):
            raise RuntimeError(f"a copy in {self._unchanged} would test plugrad of {found}")

    def try_site(self, site: Site, test: str | None = None) -> Outcome:
        """Make one mistake and run the tests until one fails: the most specific first, on each backend in turn.

        Args:
            site: where the mistake is made.
            test: run this one alone.
        """
        folder, start = self._copy(), monotonic()
        path = folder / site.path
        path.write_text(site.changed(path.read_text(encoding="utf-8")), encoding="utf-8")
        own = re.match(r"backends/plugrad_(\w+)/", site.path)
        backend = own[1] if own else self._backend
        try:
            parts = self._parts(site) if test is None else [([], [test])]
            for options, tests in parts:
                core = [each for each in tests if each.startswith("tests/core/")]
                others = [each for each in tests if each not in core]
                for backends, files in (("", core), (backend, others)):
                    if killer := self._killer(folder, backends, (*options, *files), start + self._limit_s):
                        return Outcome(KILLED, killer, round(monotonic() - start, 1))
        except subprocess.TimeoutExpired:
            return Outcome(UNFINISHED, "", round(monotonic() - start, 1))
        finally:
            shutil.rmtree(folder)
        return Outcome(SURVIVED if parts else NO_TESTS, "", round(monotonic() - start, 1))

    def _parts(self, site: Site) -> list[tuple[list[str], list[str]]]:
        """Runs of pytest in turn: its options and test files; those that the table lacks come last."""
        parts = list[tuple[list[str], list[str]]]()
        if self._table is not None:
            path, function = place_in(self._table, self._root, site)
            asked = f"{path}::{function}" if function else path
            tests = self._table.tests_of(path, [function] if function else None)
            files = sorted({each.partition("::")[0] for each in tests})
            files = [each for each in files if (self._root / each).exists()]
            if files:
                first = self._table.within(tests, FIRST_S)
                near = sorted({each.partition("::")[0] for each in first} & {*files})
                options = [f"--tests-of={asked}"]
                parts = [([*options, f"--within={FIRST_S}"], near), (options, files)]
        if self._only_traced:
            return parts
        tiers = [
            [each for each in tier if not (parts and self._is_traced(each))]
            for tier in affected_tests(self._root, site.path)
        ]
        return parts + [([], tier) for tier in tiers if tier]

    def _is_traced(self, file: str) -> bool:
        """Whether the table has every test of a file."""
        assert self._table is not None
        names = re.findall(
            r"^(?:    )?def (test_\w+)", (self._root / file).read_text(encoding="utf-8"), re.MULTILINE
        )
        known = {test.partition("::")[2] for test in self._table.seconds if test.startswith(f"{file}::")}
        return {*names} <= known

    def _killer(self, folder: Path, backends: str, arguments: Sequence[str], end: float) -> str | None:
        """The test that fails there, also alone, and passes without the mistake."""
        proves_nothing = {test for test, where in self._failing if where == backends}
        while True:
            rest = [each for each in arguments if each not in proves_nothing]
            if all(each.startswith("-") for each in rest):
                return None
            options = [f"--deselect={test}" for test in sorted(proves_nothing) if "::" in test]
            status, said = self._python(folder, backends, (*PYTEST, *self._hang(), *options, *rest), end)
            if status in PASSED:
                return None
            test = first_failure(said)
            if test is None:  # it could not even begin, or its process died
                unchanged, _ = self._python(
                    self._unchanged, backends, (*PYTEST, "--collect-only", *rest), None
                )
                if unchanged in PASSED:
                    return f"pytest, exit status {status}"
                raise RuntimeError(f"pytest collects no tests without a mistake either:\n{said}")
            if test in proves_nothing:
                raise RuntimeError(f"{test} is deselected and fails:\n{said}")
            if self._passes_unchanged(test, backends):
                alone, _ = self._python(folder, backends, (*PYTEST, *self._hang(), test), end)
                if alone not in PASSED:
                    return test
            proves_nothing.add(test)

    def _hang(self) -> tuple[str, ...]:
        """Options of pytest: a test that hangs ends its process."""
        return "-o", f"faulthandler_timeout={self._hanging_s}", "-o", "faulthandler_exit_on_timeout=true"

    def _passes_unchanged(self, test: str, backends: str) -> bool:
        """Whether a test passes, or a file is collected, without a mistake."""
        key = test, backends
        if key not in self._passing | self._failing:
            only_collect = () if "::" in test else ("--collect-only",)
            status, _ = self._python(
                self._unchanged, backends, (*PYTEST, *self._hang(), *only_collect, test), None
            )
            (self._passing if status in PASSED else self._failing).add(key)
        return key in self._passing

    def _copy(self) -> Path:
        """A new copy of what git tracks, and of what it would if it were added; in an unpacked sdist, of all files."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=self._root,
            capture_output=True,
        )
        names = {*os.fsdecode(listed.stdout).split("\0")} - {""}
        if listed.returncode:
            names = {str(path.relative_to(self._root)) for path in self._root.rglob("*")}
        folder = Path(mkdtemp(dir=self._scratch)).resolve()
        for name in names:
            if (self._root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self._root / name, folder / name)
        return folder

    def _python(
        self, folder: Path, backends: str, arguments: Sequence[str], end: float | None
    ) -> tuple[int, str]:
        """The exit status of a Python that imports what is in the copy, and what it printed.

        Whatever it started ends with it.

        Raises:
            subprocess.TimeoutExpired: it is still running at the end.
        """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / each) for each in ROOTS)}
        environment.pop("PLUGRAD_TEST_REPORT", None)  # what fails with a mistake is no part of a run's report
        environment |= {"PLUGRAD_TEST_BACKENDS": backends, "PYTHONDONTWRITEBYTECODE": "1"}
        with TemporaryFile("w+") as said:  # a pipe would stay open as long as any process that a test left
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(None if end is None else max(0.0, end - monotonic()))
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            said.seek(0)
            return status, said.read()


def place_in(table: Table, root: Path, site: Site) -> tuple[str, str | None]:
    """The file and the function of a mistake as the table has them; no function for what runs at import."""
    path = site.path
    if path not in table.passing:  # the backends have files of the same names
        path = re.sub(r"^backends/plugrad_\w+/", "backends/plugrad_torch/", path)
    return path, _functions(root / site.path).get(site.line)


@cache
def _functions(path: Path) -> dict[int, str]:
    return functions_of(path.read_text(encoding="utf-8"))


def first_failure(said: str) -> str | None:
    """The first test, or file, that pytest's summary says failed, else the test during which it ended."""
    if found := re.search(r"^(?:FAILED|ERROR) (\S+(?: (?!- ).*?)??)(?: - .*)?$", said, re.MULTILINE):
        return found[1]
    outcomes = "PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS"
    begun = re.findall(
        rf"^(tests/\S+\.py::.*?)(?: (?:{outcomes}).*| (?:Timeout|Fatal Python) .*)?$", said, re.MULTILINE
    )
    done = re.findall(rf"^(tests/\S+\.py::.*?) (?:{outcomes})", said, re.MULTILINE)
    return begun[-1].rstrip() if begun and begun[-1] not in done else None


def affected_tests(root: Path, path: str) -> list[list[str]]:
    """The test files that could notice a change of a source file.

    A package is a folder or a top-level file of the core, a whole backend or a plugin. A test imports what its helpers
    import, too.

    Args:
        root: the checkout.
        path: the source file, relative to it.

    Returns:
        Paths relative to it. First those that import the module or another one of its package, the nearest modules
        first; then those that import a package which imports this one, and of a changed backend all of tests/backends.
    """
    module = module_of(path)
    parts, package = module.split("."), package_of(module)
    users = importers(root).get(package, set())
    distances: dict[str, int] = {}
    far: list[str] = []
    for folder in ("core", "backends", "plugins", "group"):
        for test in sorted((root / "tests" / folder).glob("test_*.py")):
            names, file = names_of_test(root, test), test.relative_to(root).as_posix()
            near = [_common(parts, name.split(".")) for name in names if package_of(name) == package]
            if module in test.read_text(encoding="utf-8"):
                near.append(len(parts))  # also in a program that it starts
            if near:
                distances[file] = len(parts) - max(near)
            elif not users.isdisjoint(map(package_of, names)) or (
                path.startswith("backends/") and folder == "backends"
            ):
                far.append(file)
    return [sorted(distances, key=distances.__getitem__), far]


def module_of(path: str) -> str:
    """`plugrad.batch.checks` of `core/plugrad/batch/checks.py`."""
    return ".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__")


def package_of(module: str) -> str:
    """`plugrad.batch` of `plugrad.batch.checks`, `plugrad_ppo` of `plugrad_ppo.loss`."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "plugrad" else parts[0]


@cache
def importers(root: Path) -> dict[str, set[str]]:
    """`{package: packages that import it}`."""
    found: dict[str, set[str]] = {}
    for path in (each for folder in ROOTS for each in sorted((root / folder).rglob("*.py"))):
        own = package_of(module_of(path.relative_to(root).as_posix()))
        for module, name in imports(path) if "templates" not in path.parts else ():
            found.setdefault(package_of(defined_as(root, module, name)), set()).add(own)
    return {package: users - {package, "plugrad"} for package, users in found.items()}


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """How many parts two names begin with in common."""
    return next((n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))


@cache
def names_of_test(root: Path, path: Path) -> frozenset[str]:
    """The whole paths of what a test file, and the files of `tests/` that it imports, import of plugrad's packages."""
    waiting, seen, found = [path], {path}, set()
    while waiting:
        for module, name in imports(waiting.pop()):
            found.add(defined_as(root, module, name))
            for folder in (path.parent, root / "tests"):
                helper = folder / f"{module}.py"
                if helper.exists() and helper not in seen:
                    seen.add(helper)
                    waiting.append(helper)
    return frozenset(name for name in found if name.startswith("plugrad"))


def defined_as(root: Path, module: str, name: str) -> str:
    """The whole path of an imported name in the module that defines it, not in a package that gives it, too."""
    for folder in ROOTS:
        init = root / folder / module.replace(".", "/") / "__init__.py"
        if name and init.exists():
            for origin, exported in imports(init):
                if exported == name and origin != module:
                    return defined_as(root, origin, name)
    return f"{module}.{name}".rstrip(".")


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """`(module, name)` of each import of a file; the name of a whole module is empty."""

    def found() -> Iterator[tuple[str, str]]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((each.name, "") for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from ((node.module, each.name) for each in node.names)

    return tuple(found())
