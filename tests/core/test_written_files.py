"""Files are written all at once, never through a link, and never into what is no file of its own."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import malicious_runs
import pytest

from plugrad.checkpoint import writer_lock
from plugrad.checkpoint.disk import open_in_place, refuse_links, replace_file
from plugrad.errors import CheckpointUnsafeError

PRECIOUS = b"precious"


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "mine")


def hard_link(path: Path) -> None:
    path.hardlink_to(path.parent.parent / "mine")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))


SPECIAL = [
    link,
    malicious_runs.dangling,
    malicious_runs.loop,
    malicious_runs.link_to_zero,
    malicious_runs.fifo,
    malicious_runs.directory,
    listening,
]
Plant = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that may come from a stranger, beside a file of one's own."""
    (tmp_path / "mine").write_bytes(PRECIOUS)
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def replace(path: Path) -> None:
    replace_file(path, b"new")


def append(path: Path) -> None:
    with os.fdopen(open_in_place(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
        file.write(b"new")


def lock(path: Path) -> None:
    with writer_lock(path.with_suffix("")):
        pass


@pytest.mark.parametrize("plant", SPECIAL)
@pytest.mark.parametrize("write", [replace, append, lock])
def test_nothing_but_a_regular_file_is_written_and_the_error_says_what_is_there(
    folder: Path, write: Plant, plant: Plant
) -> None:
    plant(folder / "x.lock")
    before = os.lstat(folder / "x.lock")
    with pytest.raises(CheckpointUnsafeError, match=r"x\.lock is a .*, not a regular file"):
        write(folder / "x.lock")
    assert (folder.parent / "mine").read_bytes() == PRECIOUS
    assert os.lstat(folder / "x.lock") == before
    assert sorted(os.listdir(folder)) == ["x.lock"]
    assert sorted(os.listdir(folder.parent)) == ["folder", "mine"]


@pytest.mark.parametrize("write", [append, lock])
def test_what_has_a_second_name_elsewhere_is_not_written_in_place(folder: Path, write: Plant) -> None:
    hard_link(folder / "x.lock")
    with pytest.raises(CheckpointUnsafeError, match="has 2 names"):
        write(folder / "x.lock")
    assert (folder.parent / "mine").read_bytes() == PRECIOUS


def test_a_new_file_takes_the_place_of_one_name_only(folder: Path) -> None:
    hard_link(folder / "x")
    replace_file(folder / "x", b"new")
    assert ((folder / "x").read_bytes(), (folder.parent / "mine").read_bytes()) == (b"new", PRECIOUS)


def test_no_directory_below_the_named_one_may_be_a_link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder / "inner").symlink_to("../elsewhere")
    for write in (
        lambda path: replace_file(path, b"new", within=folder),
        lambda path: os.close(open_in_place(path, os.O_WRONLY, within=folder)),
    ):
        with pytest.raises(CheckpointUnsafeError, match=r"inner is a link, not a directory"):
            write(folder / "inner" / "deeper" / "x")
    with pytest.raises(CheckpointUnsafeError, match=r"inner is a link"):
        refuse_links(folder / "inner" / "x", folder)
    assert os.listdir(folder.parent / "elsewhere") == []


def test_links_in_a_path_that_the_user_named_are_followed(folder: Path) -> None:
    (folder.parent / "short").symlink_to(folder)
    replace_file(folder.parent / "short" / "a" / "x", b"new", within=folder.parent / "short")
    assert (folder / "a" / "x").read_bytes() == b"new"
    with pytest.raises(CheckpointUnsafeError, match="leads out"):
        replace_file(folder / "a" / ".." / ".." / "mine", b"new", within=folder)


def test_a_file_gets_the_permissions_that_it_is_given_and_nothing_is_left_of_a_failed_write(
    folder: Path,
) -> None:
    replace_file(folder / "x", b"new", mode=0o700)
    assert os.stat(folder / "x").st_mode & 0o777 == 0o700
    with pytest.raises(TypeError):
        replace_file(folder / "x", "no bytes")  # type: ignore[arg-type]
    assert os.listdir(folder) == ["x"]
    assert (folder / "x").read_bytes() == b"new"
