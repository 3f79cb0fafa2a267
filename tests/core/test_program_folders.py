"""Compiled programs are kept and loaded only where nobody but this user may write."""

import logging
import os
from pathlib import Path

import needs
import pytest

from plugrad.hooks.backend_helpers import program_folder, program_folder_or_none, why_not_closed

OPEN_MODES = (0o777, 0o1777, 0o722, 0o770, 0o720)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def below(cache: Path, levels: int) -> Path:
    """A folder that plugrad made, so many levels above the one with the programs."""
    return [program_folder("f", "inner"), *program_folder("f", "inner").parents][levels]


def test_every_folder_that_is_made_is_closed_whatever_the_umask_says(cache: Path) -> None:
    before = os.umask(0)
    try:
        folder = program_folder("f", "inner")
    finally:
        os.umask(before)
    made = [each for each in (folder, *folder.parents) if each.is_relative_to(cache / "plugrad")]
    assert len(made) == 4
    assert [each.stat().st_mode & 0o7777 for each in made] == [0o700] * 4
    assert folder.is_relative_to(cache / "plugrad" / "f")


@pytest.mark.parametrize("mode", OPEN_MODES)
@pytest.mark.parametrize("levels", range(4))
def test_a_folder_to_which_others_may_write_is_not_used_and_one_line_says_which(
    cache: Path, levels: int, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    open_to_others = below(cache, levels)
    open_to_others.chmod(mode)
    with caplog.at_level(logging.INFO, "plugrad"):
        assert program_folder_or_none("f", "inner") is None
    (line,) = caplog.messages
    assert line.startswith("f: compiled updates are neither kept on disk nor loaded: others may write to ")
    assert f"{open_to_others} (mode {mode:04o})" in line
    with pytest.raises(PermissionError, match="others may write"):
        program_folder("f", "inner")


@pytest.mark.parametrize("levels", range(4))
def test_a_link_in_place_of_a_folder_is_not_followed(cache: Path, tmp_path: Path, levels: int) -> None:
    folder = below(cache, levels)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert program_folder_or_none("f", "inner") is None


@pytest.mark.parametrize(("mode", "is_used"), [(0o1777, True), (0o755, True), (0o777, False), (0o757, False)])
def test_above_its_own_folders_others_may_write_only_with_the_sticky_bit(
    cache: Path, mode: int, is_used: bool
) -> None:
    cache.mkdir()
    cache.chmod(mode)
    assert (program_folder_or_none("f") is not None) is is_used


def test_a_link_of_the_user_to_the_cache_is_followed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big").mkdir()
    cache.symlink_to("big")
    assert program_folder("f").is_relative_to((tmp_path / "big").resolve())


@pytest.mark.parametrize("levels", range(5))
def test_a_folder_of_another_user_is_not_used(
    cache: Path, levels: int, caplog: pytest.LogCaptureFixture
) -> None:
    needs.root()
    theirs = below(cache, levels)
    os.chown(theirs, 12345, 12345)
    assert program_folder_or_none("f", "inner") is None
    assert f"{theirs} belongs to user 12345" in caplog.messages[0]


def test_a_folder_of_another_group_that_may_write_is_not_used(cache: Path) -> None:
    needs.root()
    program_folder("f")
    os.chown(cache, 0, 12345)
    cache.chmod(0o770)
    assert program_folder_or_none("f") is None
    cache.chmod(0o750)
    assert program_folder_or_none("f") is not None


def test_a_file_in_place_of_the_cache_means_no_cache(cache: Path) -> None:
    cache.write_text("")
    assert program_folder_or_none("f") is None
    assert why_not_closed(cache.parent.resolve(), made=1) is None
