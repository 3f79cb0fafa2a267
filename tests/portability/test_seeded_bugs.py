"""Bugs that hurt only on another framework: the strict backend names each with its line, and lets right code pass."""

import re

import bugs  # noqa: F401
import needs
import numpy as np
import pytest
from seeded import BUGS, TWINS, Seeded

from plugrad.errors import PortabilityError

NEUTRAL = [name for name, each in BUGS.items() if each.needs is None]
MISSED = {
    "key_order.SlowHead": "the line that copies the mapping is named, not that which takes the last of the copy",
}
"""Those whose line the strict backend does not name, and why; at most five."""


def test_there_are_a_hundred_of_many_kinds() -> None:
    assert len(BUGS) >= 100
    assert len(TWINS) >= 30
    assert len({each.kind for each in BUGS.values()}) >= 15
    assert all(each.wrong_lines for each in BUGS.values())
    assert not any(each.wrong_lines for each in TWINS.values())
    assert len(MISSED) <= 5


MAY_FAIL = pytest.mark.xfail(strict=True)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=MAY_FAIL) if each in MISSED else each for each in NEUTRAL]
)
def test_the_strict_backend_names_the_line_of_a_bug(name: str) -> None:
    assert_is_named(BUGS[name])


def assert_is_named(seeded: Seeded) -> None:
    with pytest.raises(PortabilityError) as caught:
        seeded.train("strict")
    said = str(caught.value)
    assert any(re.search(rf"{re.escape(line)}(?!\d)", said) for line in seeded.wrong_lines), said


@pytest.mark.cross_product(part=3)
@pytest.mark.parametrize("name", TWINS)
def test_right_code_is_left_alone(name: str) -> None:
    learner = TWINS[name].train("strict")
    for module_id in learner.module:
        assert np.isfinite(learner.metrics.results[module_id]["total_loss"])


@pytest.mark.long
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_looks_harmless_on_some_backend(name: str) -> None:
    """It trains there; or it is a broadcast, which every backend finds."""
    seeded = BUGS[name]
    refusals = []
    for backend in ["numpy", *needs.backends_under_test()]:
        try:
            seeded.train(backend, compile="none")
        except Exception as refusal:
            refusals.append(f"{backend}: {refusal}")
        else:
            return
    assert seeded.kind == "wrong broadcast", "\n".join(refusals)
    assert all("B, B" in each for each in refusals)
