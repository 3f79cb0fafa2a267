"""The code of docs/many-learners.md runs, on the Ray of these tests."""

from pathlib import Path

import pytest
from pages import assert_page_runs


def test_the_code_of_the_page_runs(cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_page_runs("many-learners.md")
