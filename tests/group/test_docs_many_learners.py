"""The code of docs/many-learners.md runs, on the Ray of these tests."""

from pathlib import Path

import pytest
from pages import run_page


def test_the_code_of_the_page_runs(cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page("many-learners.md")
