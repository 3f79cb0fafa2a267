"""A stranger's run directory, with something else at every name that a command writes: nothing outside changes."""

import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import needs
import pytest
from click.testing import Result
from tiny_runs import plugrad, tiny_run

COMMANDS: dict[str, list[str]] = {
    "resume": ["train", "--quiet", "--stop-timesteps=400", "--resume"],
    "plot": ["plot"],
    "record": ["record", "--episodes=1"],
    "report": ["report"],
    "video": ["video"],
}
NAMES = {
    "resume": [
        "train",
        "train.lock",
        "config.toml",
        "stop.toml",
        "metrics.jsonl",
        "metrics.csv",
        "summary.json",
        "checkpoints",
        "checkpoints/last",
        "checkpoints/last.lock",
        "checkpoints/last/save-99",
        "checkpoints/best",
        "checkpoints/best.lock",
        # Names of earlier versions, while a file was written.
        "metrics.csv.new",
        "metrics.jsonl.new",
    ],
    "plot": ["curve.png"],
    "record": ["episodes", "episodes.lock", "episodes/save-1"],
    "report": ["report.html"],
    "video": ["video.gif"],
}
EXTRAS = {"plot": ["matplotlib"], "video": ["PIL", "pygame"]}
LIMIT_S = 120
"""Nothing takes nearly as long: what takes longer waits for something."""


def link_to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "precious")


def link_to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "folder")


def link_to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "new")


def link_to_zeros(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path, outside: Path) -> None:
    path.symlink_to(path.name)


def hard_link(path: Path, outside: Path) -> None:
    path.hardlink_to(outside / "precious")


def fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def listening(path: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(os.path.relpath(path))  # a socket's path may have some hundred letters


def folder(path: Path, outside: Path) -> None:
    path.mkdir()


def device(path: Path, outside: Path) -> None:
    needs.root()
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def disk(path: Path, outside: Path) -> None:
    needs.root()
    os.mknod(path, stat.S_IFBLK | 0o666, os.makedev(7, 250))


def file_of_another(path: Path, outside: Path) -> None:
    needs.root()
    path.write_bytes(b"")
    os.chown(path, 12345, 12345)


def folder_of_another(path: Path, outside: Path) -> None:
    needs.root()
    path.mkdir(mode=0o777)
    os.chown(path, 12345, 12345)


PLANTS: list[Callable[[Path, Path], None]] = [
    link_to_file,
    link_to_folder,
    link_to_nothing,
    link_to_zeros,
    loop,
    hard_link,
    fifo,
    listening,
    folder,
    device,
    disk,
    file_of_another,
    folder_of_another,
]
CASES = [(command, name) for command, names in NAMES.items() for name in names]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("stranger") / "run", "--stop-timesteps=384")


@pytest.fixture
def run(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the current folder, beside a folder with what is precious."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "precious").write_bytes(b"precious")
    (tmp_path / "outside" / "folder" / "precious").write_bytes(b"precious")
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    def too_long(*_: object) -> None:
        raise TimeoutError(f"the command waits: {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def call(command: str, run: Path) -> Result:
    for extra in EXTRAS.get(command, ()):
        needs.extra(extra)
    return plugrad(*COMMANDS[command], run)


def state(folder: Path) -> dict[Path, Any]:
    """All that is in a folder, and the folder itself."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        about = os.lstat(path)
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else None
        is_folder = stat.S_ISDIR(about.st_mode)
        times = (about.st_mtime_ns, about.st_ino, about.st_uid, about.st_mode)
        found[path] = (times, None if is_folder else about.st_size, content)
    return found


@pytest.mark.parametrize("plant", PLANTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize(("command", "name"), CASES)
def test_nothing_outside_of_a_run_changes_and_no_command_waits(
    run: Path, tmp_path: Path, command: str, name: str, plant: Callable[[Path, Path], None]
) -> None:
    path = run / name
    if path.is_dir():
        shutil.rmtree(path) if path.name != "last" else path.rename(run / "moved")
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    plant(path, tmp_path / "outside")
    there = os.lstat(path)
    before, names = state(tmp_path / "outside"), set(os.listdir(tmp_path))
    done = call(command, run)
    assert state(tmp_path / "outside") == before
    assert set(os.listdir(tmp_path)) == names
    if done.exit_code:
        assert done.stderr.splitlines()[-1].startswith("plugrad: error: "), done.output
        assert done.exit_code in (1, 2), done.output
    else:  # it is left, or a file of one's own is in its place
        after = os.lstat(path)
        is_left = (after.st_ino, stat.S_IFMT(after.st_mode)) == (there.st_ino, stat.S_IFMT(there.st_mode))
        assert is_left or (stat.S_ISREG(after.st_mode) and after.st_nlink == 1)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_names_above_are_all_that_a_command_writes(run: Path, command: str) -> None:
    before = state(run)
    assert call(command, run).exit_code == 0
    changed = {path for path, found in state(run).items() if before.get(path) != found}
    changed |= before.keys() - state(run).keys()
    saves = ("checkpoints/last/save-", "checkpoints/best/save-", "episodes/save-")
    written = {str(path.relative_to(run)) for path in changed} - {"."}
    unknown = {each for each in written if each not in NAMES[command] and not each.startswith(saves)}
    assert unknown == set(), "add them to NAMES"
    assert written, "the command wrote nothing: this shows nothing"
