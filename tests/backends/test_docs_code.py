"""The code of the pages under docs/ runs, and raises what they say that it raises."""

from pathlib import Path

import needs
import pytest
from pages import assert_page_runs

PAGES = [
    "checkpoints.md",
    "determinism.md",
    "environments.md",
    "errors.md",
    "from-stable-baselines3.md",
    "impala.md",
    "listeners.md",
    "models.md",
    "multi-agent.md",
    "networks.md",
    "off-policy.md",
    "sampling.md",
    "performance.md",
    "quick-start.md",
    "update.md",
    "use-a-policy.md",
    "your-simulator.md",
]


EXTRAS = {"multi-agent.md": "mpe2"}
"""What the code of a page needs beside a framework."""


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in EXTRAS:
        needs.extra(EXTRAS[name])
    monkeypatch.chdir(tmp_path)
    assert_page_runs(name)
