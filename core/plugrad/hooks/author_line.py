"""Find the author's lines: the innermost one for an error's message, and all of them for its traceback.

A learner's libraries are plugrad and its backend, with the framework that the backend's distribution requires and the
packages that `BackendInfo` names. Algorithms and models are author's code, wherever they are installed.
"""

import os
import sys
from collections.abc import Callable, Iterable
from types import ModuleType, TracebackType

from plugrad.hooks.backend_types import BackendInfo
from plugrad.hooks.manager import Plugin
from plugrad.hooks.plugin_records import entries, needed

Line = tuple[str, int]
"""A file and a line number."""
WHOLE_TRACEBACKS = "PLUGRAD_DEBUG"
"""The environment variable."""
_BESIDE = (os.path.join(os.path.dirname(os.__file__), ""),)
"""Python's own files, such as those of `contextlib`."""


def author_line(lines: Iterable[Line], is_authors: Callable[[str], bool]) -> Line | None:
    """Find the line of an author.

    Args:
        lines: innermost first, such as from `plugrad.hooks.backend_helpers.calling_lines()`.
        is_authors: tells whether a file is an author's, such as the function from `in_no_library`.

    Returns:
        The first line of such a file, or None.
    """
    return next((each for each in lines if is_authors(each[0])), None)


def in_no_library(plugins: Iterable[Plugin], info: BackendInfo | None) -> Callable[[str], bool]:
    """Make a function that tells whether a file is outside a learner's libraries.

    Args:
        plugins: the learner's plugins; one of them is its backend.
        info: the backend's description; None: it is not known yet.

    Returns:
        A function of the file's name.
    """
    backends = [each for each in plugins if each.tier == "backend"]
    packages = {"plugrad", "numpy", "pluggy", *(info.packages if info else ()), *map(_package, backends)}
    packages |= {name for each in backends for name in _required(each.name)}
    libraries = ("<", *(place for package in sorted(packages) for place in _places(package)))
    return lambda file: not file.startswith(libraries)


def _package(plugin: Plugin) -> str:
    implementation = plugin.implementation
    is_module = isinstance(implementation, ModuleType)
    name = implementation.__name__ if is_module else type(implementation).__module__
    return str(name).partition(".")[0]


def _required(backend: str) -> set[str]:
    """The packages of the distributions that it needs, if they have the same names."""
    owners = [owner for entry, owner in entries("backend") if entry.name == backend]
    return {name.replace("-", "_") for owner in owners for name in needed(owner, backend)[0]}


def _places(package: str) -> list[str]:
    """Folders that end in a separator, and files."""
    module = sys.modules.get(package)
    if folders := getattr(module, "__path__", ()):
        return [os.path.join(folder, "") for folder in folders]
    file = getattr(module, "__file__", None)
    return [file] if file else []


def shows_all_frames() -> bool:
    """Whether tracebacks are left whole: PLUGRAD_DEBUG is set to anything but 0."""
    return os.environ.get(WHOLE_TRACEBACKS, "") not in ("", "0")


def authors_traceback(
    error: BaseException, plugins: Iterable[Plugin], info: BackendInfo | None
) -> TracebackType | None:
    """The traceback of an error without the frames of libraries above the author's innermost one.

    What that frame has called stays: it says what failed. An error without an author's frame keeps all of them.

    Args:
        error: as it was caught.
        plugins: the learner's plugins.
        info: the backend's description; None: it is not known yet.

    Returns:
        The traceback, for `error.with_traceback(...)`; the whole one if `shows_all_frames()`.
    """
    entries: list[TracebackType] = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    if shows_all_frames():
        return error.__traceback__
    is_authors = in_no_library(plugins, info)
    are_shown = [
        is_authors(file) and not (file.startswith(_BESIDE) and "site-packages" not in file)
        for file in (each.tb_frame.f_code.co_filename for each in entries)
    ]
    if True not in are_shown:
        return error.__traceback__
    innermost = len(are_shown) - 1 - are_shown[::-1].index(True)
    shown: TracebackType | None = None
    for number, each in reversed([*enumerate(entries)]):
        if number >= innermost or are_shown[number]:
            shown = TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return shown
