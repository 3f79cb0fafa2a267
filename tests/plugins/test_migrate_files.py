"""`plugrad migrate` and files: line ends, encodings, and where the new ones go."""

from pathlib import Path

import needs
import pytest
from click.testing import CliRunner, Result

from plugrad.cli import main

needs.extra("libcst")

THEIRS = b"# \xc3\xa9\r\nfrom ray.rllib.algorithms.ppo import PPOConfig\r\nconfig = PPOConfig()\r\n"
OURS = b"# \xc3\xa9\r\nfrom plugrad_ppo import PPOConfig\r\nconfig = PPOConfig.rllib_defaults()\r\n"
LATIN = "# coding: latin-1\n# é\n".encode("latin-1")


def migrate(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["migrate", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_the_mark_at_the_start_stay(start: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(start + THEIRS)
    migrate(path, "--out", tmp_path / "new")
    migrate(path, "--write")
    assert path.read_bytes() == (tmp_path / "new/mine.py").read_bytes()
    # The first comment is above the imports, which are sorted by a blank line.
    assert path.read_bytes().replace(b"\r\n\r\n", b"\r\n") == start + OURS


def test_the_encoding_that_a_file_names_stays(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(LATIN + b"from ray.rllib.algorithms.ppo import PPOConfig\n")
    migrate(path, "--write")
    assert path.read_bytes().startswith(LATIN)
    assert b"plugrad_ppo" in path.read_bytes()


@pytest.mark.parametrize("wrong", [b"utf-8", b"martian"])
def test_a_file_that_is_no_text_is_named(wrong: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(LATIN.replace(b"latin-1", wrong))
    assert f"{path} is no text in the encoding that it says" in migrate(path, code=1).stderr


def test_two_files_of_one_name_are_not_written_over_each_other(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.py").write_text("x = 1\n")
    files = [tmp_path / folder / "main.py" for folder in ("one", "two")]
    new = tmp_path / "new"
    for paths in (files, [file.parent for file in files]):
        stderr = migrate(*paths, "--out", new, code=2).stderr
        assert f"{files[0]} and {files[1]} would both be {new / 'main.py'}" in stderr
    assert not new.exists()
    migrate(tmp_path, "--out", new)
    migrate(files[0], files[0], "--out", new)
    assert {str(each.relative_to(new)) for each in new.rglob("*.py")} == {
        "main.py",
        "one/main.py",
        "two/main.py",
    }
