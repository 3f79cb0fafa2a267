"""The code of the pages under docs/ runs, and raises what they say that it raises."""

from pathlib import Path

import pytest
from pages import assert_page_runs

PAGES = [
    "checkpoints.md",
    "determinism.md",
    "environments.md",
    "errors.md",
    "from-stable-baselines3.md",
    "listeners.md",
    "models.md",
    "networks.md",
    "off-policy.md",
    "performance.md",
    "quick-start.md",
    "update.md",
    "use-a-policy.md",
    "your-simulator.md",
]


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_page_runs(name)
