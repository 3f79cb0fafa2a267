"""The code of the README runs as it stands there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_readme_has_code() -> None:
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("block", BLOCKS, ids=["simulator", "plugin"])
def test_the_code_of_the_readme_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(block, str(README), "exec"), names)
    assert names["learner"].module  # type: ignore[attr-defined]


def test_the_learner_of_the_readme_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[0], str(README), "exec"), {})
    *updates, actions = capsys.readouterr().out.strip().splitlines()
    rewards = [float(line.split()[1]) for line in updates]
    assert rewards[0] < 0.7 < 0.9 < rewards[-1]
    assert actions == "[1]"
