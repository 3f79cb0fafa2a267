"""Our collective for one machine goes through the suite that every author's goes through."""

from time import sleep

import numpy as np
import pytest

from plugrad.collective import Collective
from plugrad.testing import member_process
from plugrad.testing.collective_suite import *  # noqa: F403
from plugrad.testing.members import Members, answers
from plugrad.types import Array


@pytest.fixture(scope="session")
def collective() -> str:
    return "shared_memory"


def test_each_epoch_of_the_suite_is_cleaned_up_once(collective_class: type[Collective]) -> None:
    cleaned: list[str] = []

    class Noting(collective_class):  # type: ignore[valid-type, misc]
        @classmethod
        def clean_up(cls, key: str) -> None:
            cleaned.append(key)

    members = Members()
    members.cls = Noting
    keys = []
    for _ in range(2):
        keys.append(members.introduce([]).key)
        members.part()
    assert cleaned == keys


def test_large_answers_that_a_process_gives_at_once_are_whole(members: Members) -> None:
    """Each is many times what a socket takes at once."""

    def large(seat: member_process.Seat, number: int) -> Array:
        sleep(0.1)  # until all are asked for
        return np.full(300_000, number)

    (member,) = members.take(1)
    asked = [member.ask(large, number) for number in range(8)]
    for number, found in enumerate(answers(asked, 5.0)):
        np.testing.assert_array_equal(found, np.full(300_000, number))
