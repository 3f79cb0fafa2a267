"""A program for RLlib, with two agents, own parts, Tune, restoring and serving: migrated, it does what it did."""

import difflib
import re
import runpy
import sys
from pathlib import Path

import needs
import pytest

PROGRAMS = Path(__file__).parents[1] / "data/rllib_program"
BY_HAND = 15


class NoRLlib:
    """Lets nothing of RLlib be imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "ray.rllib" or name.startswith("ray.rllib."):
            raise ImportError(f"{name} is blocked")


def test_the_migrated_program_is_what_migrate_gives_but_for_a_few_lines() -> None:
    needs.extra("libcst")
    from plugrad_rllib.migrate.rewrite import migrate

    given, notes = migrate((PROGRAMS / "original.py").read_text())
    lines = given.splitlines()
    changes = list(difflib.ndiff(lines, (PROGRAMS / "migrated.py").read_text().splitlines()))
    assert 0 < sum(each.startswith("+ ") for each in changes) <= BY_HAND
    noted = " ".join(note.text for note in notes)
    for change in (".from_checkpoint", ".get_module"):  # each of them is at a line that a note names
        assert change in noted
    assert "steps_to_meet" not in noted  # a metric of its own callbacks
    assert "ray.rllib" not in "\n".join(lines[10:])


@needs.backends("torch")
def test_the_migrated_program_searches_restores_trains_and_serves(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs.extra("pandas")
    monkeypatch.setattr(sys, "meta_path", [NoRLlib(), *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["migrated.py", "--iterations", "2", "--storage", str(tmp_path)])
    runpy.run_path(str(PROGRAMS / "migrated.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(r"^best learning rate 0\.0", printed, re.MULTILINE)
    # Two iterations in a trial, two more afterwards: steps, returns in training and evaluation, and own results.
    rows = [line.split() for line in printed.splitlines() if re.fullmatch(r"(\d+)( \S+){3} 2", line)]
    assert [int(row[0]) for row in rows] == [384, 512]
    for _, mean, steps_to_meet, evaluated, _ in rows:
        assert -4 < float(mean) <= 2
        assert 2 <= float(steps_to_meet) <= 20
        assert -4 < float(evaluated) <= 2
    assert re.search(r"^return of a served episode -?\d", printed, re.MULTILINE)
