"""Mutants: each of the twelve mistakes is found in a source text, changes what it says and nothing else."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dying_mutants import Dying, died, read
from dying_mutants import draw as draw_dying
from mutant_runs import KILLED, SURVIVED, UNFINISHED, Trials, affected_tests, first_failure
from mutant_sites import OPERATORS, sites_in
from mutants import decided_within, draw, identity, packages
from tests_of import Table
from waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[2]
SAMPLE = '''"""A text - it has x[1:] and x.copy()."""

__all__ = ["float32"[:1]]
if TYPE_CHECKING:
    NAMES = NAMES[1:]


class Sample(Base):
    limit: Literal[1 - 2] = 3

    def step(self, x: "a - b", mask) -> Array[1:]:
        """Not ops.stop_gradient(x)."""
        if x < 3:
            raise ValueError(f"{x - 1} is below" + str(x - 1))
        _log.info("rows %d", x - 1)
        y = ops.stop_gradient(x)
        kept = self.state.copy()
        loss = self.loss(y) - (  # minus - of course
            kept["größe"])
        loss = ops.mean(loss, axis=-1) * weight
        self.apply(
            np.asarray(ops.where(mask, loss, 0.0), np.float64),
        )
        self.weights_version += 1
        with self._lock, suppress(OSError):
            self.collective.barrier()
        return compute(loss, y)
'''
APPLY = """self.apply(
            np.asarray(ops.where(mask, loss, 0.0), np.float64),
        )"""
COUNT = "self.weights_version += 1"
CHANGES = {
    "sign": [("-", "+"), ("+", "-")],
    "off by one": [("<", "<=")],
    "missing stop_gradient": [("ops.stop_gradient(x)", "x")],
    "missing copy": [("self.state.copy()", "self.state")],
    "dropped mask": [("ops.where(mask, loss, 0.0)", "loss")],
    "swapped order": [(f"{APPLY}\n        {COUNT}", f"{COUNT}\n        {APPLY}"), ("loss, y", "y, loss")],
    "dtype": [("np.float64", "np.float32")],
    "missing lock": [("self._lock, ", "")],
    "missing barrier or sync": [("self.collective.barrier()", "pass")],
    "stale cache or version": [(COUNT, "pass")],
    "wrong axis of a mean": [("-1", "0")],
    "unscaled share": [("ops.mean(loss, axis=-1) * weight", "ops.mean(loss, axis=-1)")],
}
"""`{mistake: [(what stands in the sample, what would)]}`: all sites that it has."""
SIGN = """def negative(x):
    return -sum(x)


def rest(x):
    return x[1:]
"""
LOOP = """def countdown(x):
    while x > 0:
        x -= 1
"""
TEST_OF_LOOP = """
from plugrad.loop import countdown


def test_process():
    assert os.getpid() > 0


def test_countdown():
    countdown(3)
"""
TEST_OF_SIGN = """from plugrad.sign import negative


def test_that_fails_in_any_case():
    assert negative([1]) == 2


def test_negative():
    assert negative([1]) == -1
"""


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_mistake_changes_what_it_says_and_nothing_else(operator):
    code = SAMPLE.encode()
    sites = [each for each in sites_in("sample.py", SAMPLE) if each.operator == operator]
    assert [(code[each.start : each.end].decode(), each.new) for each in sites] == CHANGES[operator]
    for site in sites:
        before, after = code[: site.start].decode(), code[site.end :].decode()
        assert site.changed(SAMPLE) == before + site.new + after
        assert site.line == before.count("\n") + 1


@pytest.fixture(scope="module")
def among():
    return packages(ROOT)


def test_mutants_of_this_checkout_are_python_and_differ_from_it(among):
    drawn = draw(among, seed=1, number=30)
    assert len({*drawn}) == 30
    for site in drawn:
        text = (ROOT / site.path).read_text(encoding="utf-8")
        compile(site.changed(text), site.path, "exec")
        assert site.changed(text) != text


def test_equal_seeds_draw_equal_mutants(among):
    drawn = draw(among, seed=1, number=30)
    assert draw(among, seed=1, number=40)[:30] == drawn
    assert draw(among, seed=2, number=30) != drawn


def test_every_mistake_can_be_made_in_the_core(among):
    (core,) = (each for each in among if each.name == "plugrad")
    assert {*core.sites} == {*OPERATORS}


def test_which_tests_could_notice(tmp_path):
    files = {
        "core/plugrad/disk/__init__.py": "from plugrad.disk.files import write",
        "core/plugrad/disk/files.py": "def write(): ...",
        "core/plugrad/disk/folders.py": "",
        "core/plugrad/saving.py": "from plugrad.disk import write",
        "backends/plugrad_jax/ops.py": "",
        "tests/core/test_folders.py": "from plugrad.disk.folders import make",
        "tests/core/test_helped.py": "from saving_helper import save",
        "tests/core/test_saving.py": "import plugrad.saving",
        "tests/core/test_types.py": "import plugrad.types",
        "tests/backends/test_ops.py": "def test_ops(backend): ...",
        "tests/saving_helper.py": "from plugrad.disk import write",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert affected_tests(tmp_path, "core/plugrad/disk/files.py") == [
        ["tests/core/test_helped.py", "tests/core/test_folders.py"],
        ["tests/core/test_saving.py"],
    ]
    assert affected_tests(tmp_path, "backends/plugrad_jax/ops.py") == [[], ["tests/backends/test_ops.py"]]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of two functions, and a test of one of them."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take time to import
    files = {
        "core/plugrad/__init__.py": "",
        "core/plugrad/sign.py": SIGN,
        "core/plugrad/loop.py": LOOP,
        "tests/core/test_sign.py": TEST_OF_SIGN,
        "tests/core/test_loop.py": TEST_OF_LOOP,
    }
    for name, text in files.items():
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "checkout", check=True)
    (tmp_path / "scratch").mkdir()
    return tmp_path / "checkout"


@pytest.fixture
def trials(checkout):
    """`trials(limit_s)`: of that checkout."""
    return lambda *limits: Trials(checkout, checkout.parent / "scratch", "torch", *limits)


def test_a_mutant_is_killed_by_a_test_that_passes_without_the_mistake(trials):
    tried = trials(60.0)
    found = {site.operator: tried.try_site(site) for site in sites_in("core/plugrad/sign.py", SIGN)}
    assert {operator: (each.kind, each.by) for operator, each in found.items()} == {
        "sign": (KILLED, "tests/core/test_sign.py::test_negative"),
        "off by one": (SURVIVED, ""),
    }


def test_tests_that_take_too_long_decide_nothing(trials):
    assert trials(0.0).try_site(sites_in("core/plugrad/sign.py", SIGN)[0]).kind == UNFINISHED


def test_a_test_that_hangs_alone_too_has_noticed_the_mistake(trials):
    (site,) = (each for each in sites_in("core/plugrad/loop.py", LOOP) if each.operator == "sign")
    outcome = trials(60.0, 3.0).try_site(site)
    assert (outcome.kind, outcome.by) == (KILLED, "tests/core/test_loop.py::test_countdown")


def test_a_test_that_killed_a_mutant_is_asked_alone(checkout, trials):
    (site,) = (each for each in sites_in("core/plugrad/sign.py", SIGN) if each.operator == "sign")
    tried = trials(60.0)
    assert tried.try_site(site, "tests/core/test_sign.py::test_negative").kind == KILLED
    assert tried.try_site(site, "tests/core/test_loop.py::test_process").kind == SURVIVED
    assert tried.try_site(site, "tests/core/test_sign.py::test_that_fails_in_any_case").kind == SURVIVED


def test_a_mutant_that_died_is_where_its_lines_are(checkout, tmp_path):
    path = checkout / "core/plugrad/sign.py"
    (site,) = (each for each in sites_in("core/plugrad/sign.py", SIGN) if each.operator == "sign")
    outcome = {"mutant": identity(checkout, site), "site": f"{site.path}:{site.line}", "kind": KILLED}
    (tmp_path / "results").write_text(json.dumps(outcome | {"by": "tests/core/test_sign.py::test_negative"}))
    (dying,) = died(tmp_path / "results", checkout)
    assert (dying.before, dying.after) == ("    return -sum(x)", "    return sum(x)")
    assert draw_dying([dying], checkout, 1, 3) == [(dying, site)]
    path.write_text(f"# Moved.\n{SIGN}")
    ((_, moved),) = draw_dying([dying], checkout, 1, 3)
    assert moved.line == site.line + 1
    path.write_text(SIGN.replace("-sum", "-max"))
    assert draw_dying([dying], checkout, 1, 3) == []
    path.write_text(SIGN)
    (checkout / "tests/core/test_sign.py").write_text("")
    assert draw_dying([dying], checkout, 1, 3) == []


def test_of_those_that_died_some_are_in_this_checkout():
    drawn = draw_dying(read(), ROOT, seed=1, number=3)
    assert drawn
    for dying, site in drawn:
        assert Dying.of(site, (ROOT / site.path).read_text(encoding="utf-8"), dying.by) == dying
    assert draw_dying(read(), ROOT, seed=1, number=2) == drawn[:2]


@pytest.mark.parametrize(
    ("others", "kind"), [(("test_that_fails_in_any_case", "test_negative"), SURVIVED), ((), KILLED)]
)
def test_a_table_says_which_tests_run_and_those_that_it_lacks_run_too(checkout, trials, others, kind):
    (site,) = (each for each in sites_in("core/plugrad/sign.py", SIGN) if each.operator == "sign")
    elsewhere = {"core/plugrad/sign.py": {"negative": 1}}
    seconds = {"tests/core/test_loop.py::test_countdown": 1.0}
    seconds |= {f"tests/core/test_sign.py::{name}": 1.0 for name in others}
    Table("a commit", seconds, elsewhere).write(checkout / "tests/tests_of.json.xz")
    (checkout / "tests/conftest.py").write_text("pytest_plugins = ['tests_of']")
    shutil.copy(ROOT / "tests/tests_of.py", checkout / "tests")
    assert trials(60.0).try_site(site).kind == kind


def test_what_is_decided_soon_is_drawn_and_tried_by_the_table_alone(checkout):
    seconds = {"tests/core/test_loop.py::test_countdown": 1.0, "tests/core/test_sign.py::test_negative": 9.0}
    passing = {"core/plugrad/sign.py": {"negative": 2}, "core/plugrad/loop.py": {"countdown": 1}}
    table = Table("a commit", seconds, passing)
    among = packages(checkout)
    sites = {each for mistakes in among[0].sites.values() for each in mistakes}
    for limit, files in (
        (0.5, set()),
        (5.0, {"core/plugrad/loop.py"}),
        (10.0, {"core/plugrad/loop.py", "core/plugrad/sign.py"}),
    ):
        allowed = decided_within(limit, table, checkout)
        soon = {*filter(allowed, sites)}
        assert {each.path for each in soon} == files
        assert {*draw(among, 1, len(soon), allowed)} == soon
    (site,) = (each for each in sites if each.operator == "sign" and each.path == "core/plugrad/sign.py")
    (checkout / "tests/conftest.py").write_text("pytest_plugins = ['tests_of']")
    shutil.copy(ROOT / "tests/tests_of.py", checkout / "tests")
    for tests, kind in ((2, KILLED), (1, SURVIVED)):
        Table("a commit", seconds, {"core/plugrad/sign.py": {"negative": tests}}).write(
            checkout / "tests/tests_of.json.xz"
        )
        assert (
            Trials(checkout, checkout.parent / "scratch", "torch", 60.0, only_traced=True).try_site(site).kind
            == kind
        )


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("Timeout (0:00:02)!\nThread 0x1\n", "tests/core/test_a.py::test_b[c d]"),
        ("\n", "tests/core/test_a.py::test_b[c d]"),
        ("PASSED [ 9%]\n", None),
        (
            "FAILED [ 9%]\nFAILED tests/core/test_a.py::test_b[c d] - E: 1",
            "tests/core/test_a.py::test_b[c d]",
        ),
    ],
)
def test_the_test_at_which_pytest_ended_is_found(end, name):
    said = f"collected 2 items\n\ntests/core/test_a.py::test_a PASSED [ 5%]\ntests/core/test_a.py::test_b[c d] {end}"
    assert first_failure(said) == name


def test_a_run_that_is_ended_leaves_no_process_and_no_copy(tmp_path):
    command = [
        sys.executable,
        "tests/mutants.py",
        "--run",
        "--packages",
        "plugrad",
        "--scratch",
        str(tmp_path),
    ]
    process = subprocess.Popen([*command, "--seed", "1", "--number", "1"], cwd=ROOT)
    wait_until(lambda: bool(_in_copies(tmp_path)), "a process in a copy", 0.05)
    process.terminate()
    assert process.wait(HANG_S) == 128 + signal.SIGTERM
    assert not _in_copies(tmp_path)
    assert not [*tmp_path.iterdir()]


def _in_copies(folder):
    """Processes that import from it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PYTHONPATH={folder}" in path.read_bytes().decode(errors="replace"):
                found.append(path)
        except OSError:  # it ended
            continue
    return found
