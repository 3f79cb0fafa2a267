"""The tutorials under docs/ can be followed: every file, command and output of them, in their order."""

from pathlib import Path

import needs
import pytest
from lessons import assert_can_be_followed

NEEDS = {"your-robot": "onnxruntime", "from-rllib": "libcst"}


@pytest.mark.parametrize("lesson", ["your-robot", "your-algorithm", "from-rllib"])
def test_a_tutorial_can_be_followed(lesson: str, tmp_path: Path) -> None:
    """Of the suite that an author runs, one test: tests/package lets pip install such a plugin and runs all."""
    needs.backend("torch")
    if lesson in NEEDS:
        needs.extra(NEEDS[lesson])
    few = {"PLUGRAD_TEST_BACKENDS": "torch", "PYTEST_ADDOPTS": "-p no:cacheprovider -k settings"}
    assert_can_be_followed(f"tutorial-{lesson}.md", tmp_path, few)
