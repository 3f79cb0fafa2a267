"""The tutorials under docs/ can be followed: every file, command and output of them, in their order."""

from pathlib import Path

import needs
import pytest
from lessons import assert_can_be_followed

NEEDS = {"your-robot": "onnxruntime", "from-rllib": "libcst"}


@pytest.mark.parametrize("lesson", ["your-robot", "your-algorithm", "a-paper", "from-rllib"])
def test_a_tutorial_can_be_followed(lesson: str, tmp_path: Path) -> None:
    """Of the tests that an author runs, one or two: tests/package and tests/author let pip install them and run all."""
    needs.backend("torch")
    if lesson in NEEDS:
        needs.extra(NEEDS[lesson])
    few = {
        "PLUGRAD_TEST_BACKENDS": "torch",
        "PYTEST_ADDOPTS": "-p no:cacheprovider -k 'settings or equation'",
    }
    assert_can_be_followed(f"tutorial-{lesson}.md", tmp_path, few)
