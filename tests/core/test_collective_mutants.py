"""What is wrong with a collective, `collective_suite` says: that of docs/write-a-collective.md with a fault fails."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

HONEST = (Path(__file__).parents[1] / "author/plugrad-folder/plugrad_folder.py").read_text()
CONFTEST = """
import os, pytest
pytest_plugins = ["plugrad.testing.fixtures"]
@pytest.fixture(scope="session", params=os.environ["COLLECTIVES"].split())
def collective(request):
    return request.param
"""


@dataclass(frozen=True)
class Mutant:
    """The honest one with a fault.

    Args:
        changes: `{what stands there: what stands there instead}`.
        test: which test of the suite finds it.
        words: what that says.
    """

    changes: Mapping[str, str]
    test: str
    words: str

    def source(self) -> str:
        source = HONEST
        for old, new in self.changes.items():
            assert source.count(old) == 1, f"{old!r} is not in the collective any more"
            source = source.replace(old, new)
        return source


CHECK = "            self.check(deadline, rank)\n"
LATE = "__import__('time').monotonic() > deadline"
TOTAL = "        total = arrays[0]\n"
RETURN = "        return total\n"
RANKS = "for rank in range(self.size)]\n"
COMPARE = "if (other.shape, other.dtype) != (array.shape, array.dtype):"
BEFORE_SUM = "    def sum(self, array: Array) -> Array:\n"
SWALLOWING = """    def sum(self, array):
        try:
            return self.honest_sum(array)
        except Exception:
            return array.copy()

    def honest_sum(self, array: Array) -> Array:
"""
FORGETTING = """    def all_reduce(self, values):
        self.failure = None
        return super().all_reduce(values)

"""
SHARING = """        self.kept = getattr(self, "kept", {})
        kept = self.kept.setdefault((total.shape, total.dtype), total)
        np.copyto(kept, total)
        return kept
"""
CUTTING = """        fewest = min(each.size for each in arrays)
        arrays = [each.reshape(-1)[:fewest].copy() for each in arrays]
"""
GOING_ON = """    late = 0
    def all_reduce(self, values):
        try:
            return super().all_reduce(values)
        except Exception:
            if self.rank or self.late == {most}:
                raise
            self.late += 1
            return 7.0 * values

"""
"""Rank 0, which brings 1 beside 2 and 4, gets more sums than the others before it hears of a loss."""
LOST = "test_a_process_that_is_killed_ends_the_sums_of_all[10-2]"
MUTANTS = {
    "partial_sum_after_a_timeout": Mutant(
        {CHECK: f"            if {LATE}: return np.zeros(1)\n", COMPARE: "if False:"},
        "test_a_process_that_is_killed_before_it_comes_is_noticed[1]",
        r"the process beside rank 1, which was killed, gets array\(\[1., 1., 1.\]\), and no CollectiveError",
    ),
    "partial_sum_when_one_left": Mutant(
        {
            "                raise left_error(rank)\n": "                return 0.0 * self.mine\n",
            "        self.bring(array)\n": "        self.bring(array)\n        self.mine = array\n",
        },
        "test_who_leaves_is_not_waited_for[2]",
        r"a process that rank 2 left gets array\(\[2., 2., 2.\]\), and no CollectiveError",
    ),
    "wrong_order": Mutant(
        {RANKS: "for rank in sorted(range(self.size), key=lambda each: each != self.rank)]\n"},
        "test_all_get_the_same_bits[3]",
        "the sum of float32 .* that rank [12] of 3 gets has other bits than that of rank 0",
    ),
    "stale_epoch_counted": Mutant(
        {'f"plugrad-{key}"': '"plugrad-always-here"'},
        "test_a_late_process_of_a_former_epoch_is_never_counted[summing]",
        "",
    ),
    "two_epochs_at_a_time_mixed": Mutant(
        {'f"plugrad-{key}"': '"plugrad-always-here"'}, "test_two_groups_do_not_meet", ""
    ),
    "no_timeout": Mutant(
        {CHECK: "            if self.failure: raise self.failure\n"},
        "test_who_does_not_come_is_waited_for_until_the_timeout[0]",
        "rank 0 still waits after .* s; its limit is 0.5 s",
    ),
    "timeout_of_the_beginning": Mutant(
        {
            "deadline = self.deadline()\n": "deadline = self.deadline() - self.timeout_s + self.membership.timeout_s\n"
        },
        "test_who_does_not_come_is_waited_for_until_the_timeout[1]",
        "rank 0 still waits after .* s; its limit is 0.5 s",
    ),
    "rank_counted_twice": Mutant(
        {"[self.take(rank, deadline)": "[self.take(max(rank - 1, 0), deadline)"},
        "test_each_process_counts_once",
        r"rank 0 gets \[2.0, 1.0, 1.0, 0.0, 8.0\]: each process must count once, with what it brought",
    ),
    "wrong_rank_blamed": Mutant(
        {CHECK: CHECK.replace("rank)", "self.rank)")},
        "test_a_process_that_is_killed_before_it_comes_is_noticed[1]",
        "is told that rank 0 is missing, and it is rank 1",
    ),
    "input_changed": Mutant(
        {TOTAL: "        array[...] = arrays[0]\n        total = array\n"},
        "test_arrays_of_every_layout_are_summed_and_not_changed",
        "the array, plain, was changed",
    ),
    "failure_swallowed": Mutant(
        {BEFORE_SUM: SWALLOWING},
        "test_a_process_that_is_killed_before_it_comes_is_noticed[0]",
        r"gets array\(\[1., 1., 1.\]\), and no CollectiveError",
    ),
    "sizes_not_compared": Mutant(
        {COMPARE: "if False:", TOTAL: CUTTING + TOTAL},
        "test_arrays_of_other_sizes_are_refused_by_all[3-4]",
        r"rank 0, which brings 3 of \(3, 4\) values, gets array\(\[2., 2., 2.\]\), and no CollectiveError",
    ),
    "abort_ignored": Mutant(
        {CHECK: f"            if {LATE}: raise left_error(rank)\n"},
        "test_an_abort_from_another_thread_ends_the_waiting",
        "rank 0 still waits after .* s; its limit is 0 s",
    ),
    "leaves_without_a_word": Mutant(
        {'            (self.folder / f"{self.rank}-left").touch()\n': "            pass\n"},
        "test_who_leaves_is_not_waited_for[0]",
        "rank 0 still waits after .* s; its limit is 0 s",
    ),
    "float32_accumulation": Mutant(
        {
            TOTAL: '        total = arrays[0].astype("float32")\n',
            RETURN: "        return total.astype(array.dtype)\n",
        },
        "test_the_sum_is_that_of_numpy[float64]",
        "the sum of float64 .* is wrong by",
    ),
    "used_after_failure": Mutant(
        {BEFORE_SUM: FORGETTING + BEFORE_SUM},
        "test_a_failure_is_remembered",
        "",
    ),
    "answer_shared_between_calls": Mutant(
        {RETURN: SHARING},
        "test_answers_are_arrays_of_their_own",
        "the second sum changed the first answer; answers share memory",
    ),
    "barrier_of_one": Mutant(
        {
            BEFORE_SUM: "    def barrier(self):\n        pass\n\n" + BEFORE_SUM,
            "        self.barrier()\n": "        pass\n",
        },
        "test_nobody_passes_a_barrier_alone",
        "a process passes before all have come",
    ),
    "files_left": Mutant(
        {"            self.clean_up(self.membership.key)\n": "            pass\n"},
        "test_close_frees_what_it_took[after a timeout]",
        "",
    ),
    "nothing_cleaned_up": Mutant(
        {"        shutil.rmtree(folder_of(key), ignore_errors=True)\n": "        pass\n"},
        "test_nothing_is_left_of_processes_that_were_killed[while they sum]",
        "killed while they sum, and clean_up.* leaves",
    ),
    "two_sums_after_a_loss": Mutant(
        {BEFORE_SUM: GOING_ON.format(most=2) + BEFORE_SUM},
        LOST,
        r"after a loss, processes have \[\d+, \d+\] sums: more than one apart",
    ),
    "no_reason_given": Mutant(
        {'return f"{place': 'return False and f"{place'},
        "test_it_says_where_it_can_be_used",
        "gives False: it must be None, or a reason in words",
    ),
}

ONE_SUM_AFTER_A_LOSS = Mutant({BEFORE_SUM: GOING_ON.format(most=1) + BEFORE_SUM}, LOST, "")
"""No mistake: who had all parts before the loss has the sum, and another may not have."""


def run_suite(site: Path, sources: Mapping[str, str], *chosen: str) -> str:
    """What pytest prints of collectives in some tests."""
    info = site / "plugrad_mutants-1.0.dist-info"
    for folder in (info, site / "tests", site / "files"):
        folder.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugrad-mutants\nVersion: 1.0\n")
    points = [f"{name} = of_{name}:Folder" for name in sources]
    (info / "entry_points.txt").write_text("\n".join(["[plugrad.collectives]", *points]))
    for name, source in sources.items():
        (site / f"of_{name}.py").write_text(source)
    (site / "tests/conftest.py").write_text(CONFTEST)
    (site / "tests/test_mutants.py").write_text("from plugrad.testing.collective_suite import *\n")
    options = ("-q", "-rfEs", "-p", "no:cacheprovider", "--tb=no", "--rootdir=.", *chosen)
    more = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))),
        "COLUMNS": "1000",
        "COLLECTIVES": " ".join(sources),
        "TMPDIR": str(site / "files"),
    }
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(
        command, cwd=site / "tests", env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    return f"{done.stdout}\n{done.stderr}"


def node(name: str, test: str) -> str:
    """The test of a mutant, as pytest names it."""
    plain, _, case = test.partition("[")
    return f"test_mutants.py::{plain}[{name}{'-' + case if case else ']'}"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the suite prints of all mutants, of each in the test that finds it."""
    collectives = {**MUTANTS, "one_sum_after_a_loss": ONE_SUM_AFTER_A_LOSS}
    sources = {name: mutant.source() for name, mutant in collectives.items()}
    nodes = [node(name, mutant.test) for name, mutant in collectives.items()]
    return run_suite(tmp_path_factory.mktemp("mutants"), sources, *nodes)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_suite_fails_and_says_why(said: str, name: str) -> None:
    mutant = MUTANTS[name]
    line = rf"^FAILED {re.escape(node(name, mutant.test))} - .*{mutant.words}"
    assert re.search(line, said, flags=re.MULTILINE), said


def test_one_sum_more_than_another_process_is_no_mistake(said: str) -> None:
    assert re.search(r"\b1 passed\b", said), said


@pytest.mark.long  # in `tox -e author` a stranger's is proven
def test_the_honest_one_passes_whole(tmp_path: Path) -> None:
    said = run_suite(tmp_path, {"honest": HONEST})
    assert re.search(r"^\d\d passed in", said, flags=re.MULTILINE), said
    assert not list((tmp_path / "files").iterdir())
