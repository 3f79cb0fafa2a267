"""RLlib's own examples: what those that run after `plugrad migrate` import is known, and what others lack is named."""

import json
import re
from pathlib import Path

import needs
import pytest

needs.extra("libcst")

EXAMPLES = json.loads((Path(__file__).parents[1] / "data/rllib_examples.json").read_text())
"""`{example of RLlib: {"of", "outcome", "names", "notes"}}`; `tests/rllib_examples.py` makes it.

`of` is the wheel, or the repository and the commit, that it was taken from; those of `algorithms/*/` are the tuned
ones, without Atari, MuJoCo and DreamerV3, read without their comments, so that the lines of their notes are fewer. The
offline ones read recordings of plugrad's, since no wheel has RLlib's.

The outcome "not run" is of those that migrate rewrites otherwise since the last run, or that it did not reach.
"""
RUN = sorted(name for name, found in EXAMPLES.items() if found["outcome"] == "runs")


def migrated_imports(example: str) -> tuple[list[str], dict[int, str]]:
    """The imports of RLlib that stay after migrate, and its notes by line: the n-th name is imported on line n."""
    from plugrad_rllib.migrate.rewrite import migrate  # it needs libcst

    names = [each.split(":") for each in EXAMPLES[example]["names"]]
    text, notes = migrate("".join(f"from {module} import {name}\n" for module, name in names))
    left = re.findall(r"^from ray\.rllib.* import (\w+)$", text, re.MULTILINE)
    return left, {note.line: note.text for note in notes}


@pytest.mark.parametrize("example", RUN)
def test_everything_that_an_example_that_runs_imports_of_rllib_is_known(example: str) -> None:
    assert migrated_imports(example)[0] == []


@pytest.mark.parametrize("example", sorted(set(EXAMPLES) - set(RUN)))
def test_each_name_that_keeps_an_example_from_running_is_noted_at_its_line(example: str) -> None:
    left, notes = migrated_imports(example)
    lines = {each.partition(":")[2]: n for n, each in enumerate(EXAMPLES[example]["names"], 1)}
    for name in left:
        assert name in notes[lines[name]]
    assert EXAMPLES[example]["outcome"], "without a reason"


def test_the_page_counts_the_examples_that_run() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/from-rllib.md").read_text().split())
    tuned = {name for name in EXAMPLES if re.match(r"algorithms/\w+/", name)}
    others = EXAMPLES.keys() - tuned
    assert f"small environments, {len(tuned & set(RUN))} of {len(tuned)} train" in page
    assert f"its other examples {len(others & set(RUN))} of {len(others)}:" in page
