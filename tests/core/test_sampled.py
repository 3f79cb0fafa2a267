"""`tests/sampled.txt`, the tests that cost too much to run in all cases on all backends, names what there is."""

import re
from pathlib import Path

import pytest
from samples import COSTS

TESTS = Path(__file__).parents[1]
SUITES = TESTS.parent / "core/plugrad/testing"
"""Where the functions of a file are that has `import *`."""


@pytest.mark.parametrize("name", COSTS)
def test_it_names_what_there_is(name: str) -> None:
    file, _, function = name.partition("::")
    text = (TESTS / file).read_text()
    if "import *" in text:
        text += "".join(path.read_text() for path in SUITES.rglob("*.py"))
    assert re.search(rf"^def {re.escape(function)}\(", text, re.MULTILINE), "remove the line of sampled.txt"


def test_each_line_is_of_another_test_and_says_where_it_costs_too_much() -> None:
    lines = (TESTS / "sampled.txt").read_text().splitlines()
    assert len(COSTS) == sum(bool(line.partition("#")[0].strip()) for line in lines)
    for where in COSTS.values():
        assert where == ["drawn"] or (where and {*where} <= {"torch", "tf2", "jax"})
