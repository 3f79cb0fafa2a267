"""`plugrad migrate` and files: line ends, encodings, and where the new ones go."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import needs
import pytest
from click.testing import CliRunner, Result

from plugrad.cli import main
from plugrad_rllib.migrate.files import MAX_PROGRAM_BYTES

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


def test_what_was_mended_by_hand_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_bytes(THEIRS)
    for _ in range(2):
        migrate(tmp_path / "old.py", "--out", tmp_path / "new")
    mended = tmp_path / "new/old.py"
    mended.write_bytes(OURS + b"config.build_algo()\n")
    refused = migrate(tmp_path / "old.py", "--out", tmp_path / "new", code=1)
    assert f"{mended} is there already and differs: it stays as it is" in refused.stderr
    assert mended.read_bytes() == OURS + b"config.build_algo()\n"


# --- a stranger's folder ----------------------------------------------------------------------------------------------


def test_what_is_no_regular_file_is_named_and_left_and_the_programs_beside_it_are_rewritten(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "mine.py").write_bytes(THEIRS)
    (folder / "program.py").write_bytes(THEIRS)
    (folder / "folder.py").mkdir()
    (folder / "folder.py" / "inner.py").write_bytes(THEIRS)
    os.mkfifo(folder / "fifo.py")
    (folder / "dangling.py").symlink_to("nowhere")
    (folder / "endless.py").symlink_to("/dev/zero")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "outside.py").symlink_to("../mine.py")
    (folder / "above").symlink_to("..")
    stderr = migrate(folder, "--write").stderr.splitlines()
    links = [f"{folder}/{name}.py is a link: it is left as it is" for name in ("dangling", "endless", "loop")]
    assert [line for line in stderr if "left as it is" in line] == [
        links[0],
        links[1],
        f"{folder}/fifo.py is not a regular file: it is left as it is",
        links[2],
        f"{folder}/outside.py is a link: it is left as it is",
    ]
    assert b"plugrad_ppo" in (folder / "program.py").read_bytes()
    assert b"plugrad_ppo" in (folder / "folder.py" / "inner.py").read_bytes()
    assert (tmp_path / "mine.py").read_bytes() == THEIRS


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (lambda path: path.write_bytes(b"#" * (MAX_PROGRAM_BYTES + 1)), "at most 1048576 are read"),
    ],
)
def test_a_named_path_that_is_no_program_is_one_error(plant: Any, words: str, tmp_path: Path) -> None:
    plant(tmp_path / "x.py")
    done = migrate(tmp_path / "x.py", code=2)
    assert done.stderr.startswith(f"plugrad: error: {tmp_path}/x.py ")
    assert (done.stderr.count("\n"), words in done.stderr) == (1, True)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(THEIRS)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.py").symlink_to("mine.py")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine.py").symlink_to("../elsewhere/precious")
    assert "link.py is a link" in migrate(tmp_path / "link.py", "--write", code=1).stderr
    assert "mine.py is a link" in migrate(tmp_path / "mine.py", "--out", tmp_path / "new", code=1).stderr
    (tmp_path / "new" / "inner").symlink_to("../elsewhere")
    (tmp_path / "theirs" / "inner").mkdir(parents=True)
    (tmp_path / "theirs" / "inner" / "a.py").write_bytes(THEIRS)
    assert "inner is a link" in migrate(tmp_path / "theirs", "--out", tmp_path / "new", code=1).stderr
    assert (tmp_path / "mine.py").read_bytes() == THEIRS
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_rewritten_program_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(THEIRS)
    (tmp_path / "mine.py").chmod(0o751)
    migrate(tmp_path / "mine.py", "--write")
    assert (tmp_path / "mine.py").stat().st_mode & 0o7777 == 0o751
    assert b"plugrad_ppo" in (tmp_path / "mine.py").read_bytes()


@pytest.mark.parametrize(
    "start",
    [
        *(f"# coding: {name}\n".encode() for name in ("hex", "rot13", "zlib", "idna", "undefined", "utf-16")),
        *(f"# coding: {name}\n".encode() + b"# \xff\\ud800\\\n" for name in ("utf-7", "unicode_escape")),
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf# coding: latin-1\n",
    ],
)
def test_an_odd_encoding_is_one_error_or_a_line_where_the_folder_was_named(
    start: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "odd.py"
    path.write_bytes(start + THEIRS)
    done = migrate(path, "--write", code=1)
    assert done.stderr.startswith(f"plugrad: error: {path}")
    assert done.stderr.count("\n") == 1
    done = migrate(tmp_path, "--write")
    assert (f"{path}" in done.stderr, "left as it is" in done.stderr) == (True, True)
    assert path.read_bytes() == start + THEIRS


DEEP = {
    "sum": lambda number: "1" + "+1" * number,
    "calls": lambda number: "config" + ".training(lr=1)" * number,
    "lists": lambda number: "[" * number + "]" * number,
    "signs": lambda number: "-" * number + "1",
    "and": lambda number: "1" + " and 1" * number,
    "get": lambda number: "x = results" + ".get('env_runners')" * number,
    "import": lambda number: "import a" + ".b" * number,
    "elif": lambda number: "if 1:\n  pass\n" + "elif 1:\n  pass\n" * number,
}


def test_deep_expressions_are_rewritten_or_left_with_a_note(tmp_path: Path) -> None:
    before = {}
    for kind, text in DEEP.items():
        for number in (50, 300, 20_000):
            before[number, kind] = THEIRS + text(number).encode() + b"\n"
            (tmp_path / f"{kind}{number}.py").write_bytes(before[number, kind])
    command = [
        sys.executable,
        "-c",
        "from plugrad.cli import main; main()",
        "migrate",
        "--write",
        str(tmp_path),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False
    )  # libcst might end the process
    assert done.returncode == 0, done.stderr
    for (number, kind), text in before.items():
        path = tmp_path / f"{kind}{number}.py"
        said = [line for line in done.stderr.splitlines() if line.startswith(str(path))]
        if path.read_bytes() == text:
            assert number > 50
            assert "nested too deeply" in said[0] or "is no Python: too many nested parentheses" in said[0]
        else:
            assert number < 20_000
            assert b"plugrad_ppo" in path.read_bytes()


LINES = {
    "one call": "config.training(lr=1e-3)\n",
    "results": "r = results['env_runners']\nprint(r['episode_return_mean'])\n",
    "tune": "from ray import tune\ntune.register_env('e', lambda c: 1)\nimport ray\n",
    "imports": "from ray.rllib.algorithms.dqn import DQNConfig as D{n}\nconfig.training(lr=1)\n",
    "classes": "class A{n}(gym.Env):\n    def __init__(self, config): self.agents = 1\n",
}


@pytest.mark.parametrize("kind", LINES)
def test_twice_the_lines_take_twice_the_work(kind: str) -> None:
    from plugrad_rllib.migrate.rewrite import migrate as rewrite

    def work(number: int) -> int:
        count = 0

        def called(*event: object) -> None:
            nonlocal count
            count += 1

        text = THEIRS.decode() + "".join(LINES[kind].replace("{n}", str(n)) for n in range(number))
        sys.setprofile(called)
        try:
            rewrite(text)
        finally:
            sys.setprofile(None)
        return count

    work(1)  # what is imported late
    assert work(200) < 2.2 * work(100)


def test_a_pipe_among_an_rllib_checkpoint_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "module_state.pkl")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "module_state.pkl").write_bytes(b"no pickle")
    done = migrate(tmp_path, "--out", tmp_path / "new", "--trust-pickle", code=1)
    assert "inner/module_state.pkl was not read" in done.stderr
