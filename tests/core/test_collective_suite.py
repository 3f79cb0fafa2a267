"""Our collective for one machine goes through the suite that every author's goes through."""

import numpy as np
import pytest

from plugrad.collective import Collective
from plugrad.testing.collective_suite import *  # noqa: F403
from plugrad.testing.members import Members, answers


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
    (member,) = members.take(1)
    epochs = [members.enter([member]) for _ in range(4)]
    arrays = [np.full(300_000, float(n)) for n in range(4)]
    asked = [epoch.begin_sum([array])[0] for epoch, array in zip(epochs, arrays, strict=True)]
    for found, expected in zip(answers(asked, 5.0), arrays, strict=True):
        np.testing.assert_array_equal(found, expected)
