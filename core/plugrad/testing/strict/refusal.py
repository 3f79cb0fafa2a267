"""Refusals, and the line of the author's code that they are about; errors of Python and frameworks become refusals."""

import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeVar

from plugrad.errors import LossError, PlugradError, PortabilityError
from plugrad.hooks.author_line import Line, author_line
from plugrad.hooks.plugin_records import GROUPS, entries

_CORE = f"{Path(__file__).parents[2]}/"
_STANDARD_LIBRARY = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_INSTALLED = ("/site-packages/", "/dist-packages/")
_ASKING = tuple(
    f"{_CORE}{package}" for package in ("hooks/", "testing/strict/", "learner/learner.py", "deprecation/")
)
_refused: list[PortabilityError] = []
_boundaries: set[CodeType] = set()

Function = TypeVar("Function", bound=Callable[..., Any])


def refuse(what: str, instead: str, at: Line | None = None) -> NoReturn:
    """Refuse what the author's code does.

    Args:
        what: was done, a sentence without its stop.
        instead: what to write, a sentence without its stop.
        at: where; None: the author's line that is running.

    Raises:
        PortabilityError: always.
    """
    file, line = at or authors_line()
    error = PortabilityError(f"{file}:{line}: {what}. {instead}", file=file, line=line, instead=instead)
    _refused.append(error)
    raise error


def begin() -> None:
    """Forget refusals of before."""
    _refused.clear()


def check() -> None:
    """Raise the first refusal since `begin` again: code that caught it is no more portable for that."""
    if _refused:
        raise _refused[0]


def authors_line() -> Line:
    """The innermost line that belongs to an author: not to plugrad's core, Python, or a package that is no plugin.

    The innermost line of plugrad outside of this package where there is no author's.
    """
    frame = sys._getframe(1)
    found = author_line(_lines(frame), is_authors) or author_line(_lines(frame), _is_core)
    return found or ("<unknown>", 0)


def is_called_by_author() -> bool:
    """Whether the hook that runs was asked by an author's line, not by the core for its own ends."""
    lines = _lines(sys._getframe(1))
    files = (file for file, _ in lines if not ("/pluggy/" in file or file.startswith(_ASKING)))
    return is_authors(next(files, "<unknown>"))


def _lines(frame: FrameType | None) -> Iterator[Line]:
    """Those of a frame and of the frames around it, up to a boundary."""
    while frame is not None and not is_boundary(frame.f_code):
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _is_core(file: str) -> bool:
    return file.startswith(_CORE) and "/testing/strict/" not in file


def boundary(function: Function) -> Function:
    """Mark a function: who calls it is not the author of what it calls."""
    _boundaries.add(function.__code__)
    return function


def is_boundary(code: CodeType) -> bool:
    """Whether this is the code of a function that `boundary` marked."""
    return code in _boundaries


@cache
def is_authors(file: str) -> bool:
    """Whether a file is of an author whose code is to be portable."""
    if file.startswith(("<", _CORE)):
        return False
    if is_installed(file):
        folder = next(each for each in _INSTALLED if each in file)
        return file.rpartition(folder)[2].split("/")[0].removesuffix(".py") in _plugin_packages()
    return not file.startswith(_STANDARD_LIBRARY)


def is_installed(file: str) -> bool:
    """Whether a file is of an installed package."""
    return any(folder in file for folder in _INSTALLED)


@cache
def _plugin_packages() -> frozenset[str]:
    """Top-level packages that entry points name."""
    found = {entry.value.split(":")[0].split(".")[0] for kind in GROUPS for entry, _ in entries(kind)}
    return frozenset(found - {"plugrad"})


_READ_ONLY = ("'Rows' object", "'ConfigView' object")


@contextmanager
def foreign_errors_refused() -> Iterator[None]:
    """Refuse what raises inside because a function is not of this backend, or a batch is read-only.

    Raises:
        PortabilityError: with the author's line.
    """
    try:
        yield
    except LossError as error:
        if "where" not in error.facts:
            raise
        file, _, line = error.facts["where"].rpartition(":")
        refuse(
            f"tensors broadcast to pairs of rows ({error})", "Give all the shape [B]", at=(file, int(line))
        )
    except PlugradError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        authors = [n for n, each in enumerate(frames) if is_authors(each.filename)]
        if not authors:
            raise
        at = frames[authors[-1]].filename, frames[authors[-1]].lineno or 0
        if any(text in str(error) for text in _READ_ONLY):
            refuse(f"a batch is changed: {error}", "Make a new dict: {**batch, column: tensor}", at=at)
        if isinstance(error, ValueError) and "read-only" in str(error):
            refuse("an array that others read too is changed in place", "Make a new array: a = a * b", at)
        below = frames[authors[-1] + 1 :]
        if "StrictTensor" in str(error) or any(is_installed(each.filename) for each in below):
            refuse(
                f"a function that is not of learner.ops is given a tensor: {error}",
                "Compute with learner.ops",
                at,
            )
        raise
