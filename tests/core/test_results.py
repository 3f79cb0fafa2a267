"""Results of training: flat, by path, and read as RLlib's nested ones are."""

import pytest

from plugrad.results import Results

RESULTS = Results({"time/learn": 1.0, "evaluation/episode_return_mean": 2.0, "steps": 3.0})


def test_a_part_is_there_as_a_whole():
    assert RESULTS["evaluation"] == {"episode_return_mean": 2.0}
    assert RESULTS["evaluation"]["episode_return_mean"] == RESULTS["evaluation/episode_return_mean"] == 2.0


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("evaluation", True),
        ("steps", True),
        ("time/learn", True),
        ("eval", False),
        ("learn", False),
        (1, False),
    ],
)
def test_what_can_be_read_is_in_them(path, is_there):
    assert (path in RESULTS) == is_there
    assert (RESULTS.get(path) is not None) == is_there
    assert (RESULTS.get(path, "none") == "none") != is_there
