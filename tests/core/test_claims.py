"""Every "yes" that the README says of plugrad beside others is held by tests that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HELD_BY = {
    "one loss on several frameworks": [
        "tests/backends/test_parity.py::test_after_320_steps_of_adam_every_parameter_is_the_same_within_1e_5",
        "tests/backends/test_parity_command.py::test_our_algorithms_are_equal",
    ],
    "checkpoints without pickle": [
        "tests/core/test_checkpoint_code.py::test_a_learner_imports_nothing",
        "tests/core/test_checkpoint_hostile.py::test_ten_thousand_mutations_and_all_crafted_files_run_no_code",
    ],
    "if the process is killed while it saves, the previous save is intact": [
        "tests/core/test_checkpoint_crash.py::test_two_hundred_kills_leave_the_last_save_and_no_mixture",
        "tests/core/test_checkpoint_crash.py::test_killed_before_any_syscall_of_the_protocol_a_reader_sees_old_or_new",
    ],
    "resumes bit for bit": [
        "tests/backends/test_resume.py::test_going_on_elsewhere_and_rolling_back_lead_where_the_straight_run_led",
        "tests/backends/test_stopped_runs.py::test_the_run_ends_where_one_ends_that_was_never_stopped",
    ],
    "a bad batch or NaN leaves the learner as it was": [
        "tests/backends/test_nonfinite.py::test_raise_undoes_the_whole_update_and_names_the_place",
        "tests/core/test_batch_malformed.py::test_every_malformed_batch_is_refused_by_name",
    ],
    "if a learner of a group dies, nothing is lost and training continues": [
        "tests/group/test_faults.py::test_killed_learners_are_replaced_and_no_update_is_lost_or_repeated",
    ],
}
"""`{row of the table: tests, all of which run with `tox`}`."""


def rows() -> dict[str, list[str]]:
    """The table of the README: row -> cells of plugrad, RLlib and stable-baselines3."""
    table = (ROOT / "README.md").read_text().split("| | plugrad | RLlib's Learner |")[1].split("\n\n")[0]
    cells = ([cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()[2:])
    return {name: answers for name, *answers in cells}


def test_every_row_has_tests() -> None:
    assert set(rows()) == set(HELD_BY)
    assert all(answers[0].startswith("yes") for answers in rows().values())


@pytest.mark.parametrize("test", [test for tests in HELD_BY.values() for test in tests])
def test_a_test_that_holds_a_claim_is_there_and_runs_with_all(test: str) -> None:
    file, name = test.split("::")
    found = re.search(rf"((?:^@.*\n(?:[ )].*\n)*)*)^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None, f"{test} is not there any more"
    assert not found[1].startswith("@pytest.mark.long"), f"{test} does not run with all tests"
