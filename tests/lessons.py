"""A tutorial of docs/ as a learner follows it: writes its files, changes them, types its commands, reads the output."""

import difflib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from installed import installed
from pages import DOCS

STEP = re.compile(r"(?:^`([\w./-]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,.:-]*(e[+-]?\d+)?")


def assert_can_be_followed(page: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Do the steps of a page in their order.

    Args:
        page: the file under docs/. A block below a file's name in backticks is that file; `diff` changes the file;
            `console` is typed; `text` is what the commands before it have printed.
        folder: where the learner begins.
        environment: the variables of the commands, beside those of this process.

    Raises:
        AssertionError: a command failed and the page does not say FAILED, a change does not fit, or something else was
            printed. Numbers may be others, since processors and clocks differ, and `...` stands for anything.
    """
    here, said = folder, ""
    steps = STEP.findall((DOCS / page).read_text())
    for (name, kind, text), (_, _, after) in zip(steps, [*steps[1:], ("", "", "")], strict=True):
        if kind == "diff":
            _change(here / name, text)
        elif name:
            (here / name).write_text(text)
        elif kind == "console":
            if "pip install -e" in text:
                environment = {**environment, "PYTHONPATH": installed(here)}
            here, said = _type(text, here, environment, fails="FAILED" in after)
        elif kind == "text":
            _assert_printed(text, said)
        else:
            raise AssertionError(f"{page}: what is to be done with this block of {kind}?\n{text}")


def _change(path: Path, diff: str) -> None:
    lines = diff.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in marks) for marks in (" -", " +"))
    assert path.read_text().count(old) == 1, f"{path.name} does not have once:\n{old}"
    path.write_text(path.read_text().replace(old, new))


def _type(commands: str, here: Path, environment: Mapping[str, str], fails: bool) -> tuple[Path, str]:
    """Where the learner then stands, and what was printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", f'exec 2>&1\ntrap \'printf "\\n%s" "$PWD"\' EXIT\n{_without_pip(commands)}'],
        cwd=here,
        env={**os.environ, "PATH": path, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode != 0) == fails, f"{commands}\n{done.stdout}"
    said, _, place = done.stdout.rpartition("\n")
    return Path(place), said


def _without_pip(commands: str) -> str:
    """What the pages install is there, or is found by `installed`; tests/package asks pip."""
    return re.sub(r"^python -m pip .*$", "", commands, flags=re.MULTILINE)


def _assert_printed(expected: str, said: str) -> None:
    def words(text: str) -> list[str]:
        return [" ".join(NUMBER.sub("#", line).split()) for line in text.strip().splitlines()]

    pattern = ".*".join(re.escape(part) for part in "\n".join(words(expected)).split("..."))
    difference = "\n".join(difflib.ndiff(words(expected), words(said)))
    assert re.fullmatch(pattern, "\n".join(words(said)), re.DOTALL), difference
