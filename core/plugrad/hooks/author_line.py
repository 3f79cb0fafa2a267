"""The author's line that an error is about: the innermost one of a file that is an author's.

A learner's libraries are plugrad and its backend, with the framework that the backend's distribution requires and the
packages that `BackendInfo` names. An algorithm or a model is an author's, wherever it is installed.
"""

import os
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

from plugrad.hooks.backend_types import BackendInfo
from plugrad.hooks.entry_points import entries, needed
from plugrad.hooks.manager import Plugin

Line = tuple[str, int]
"""File and number of a line."""


def author_line(lines: Iterable[Line], is_authors: Callable[[str], bool]) -> Line | None:
    """Find the line of an author.

    Args:
        lines: innermost first, such as those of `plugrad.hooks.backend_helpers.calling_lines()`.
        is_authors: whether a file is an author's, such as `in_no_library` gives it.

    Returns:
        The first line of such a file, or None.
    """
    return next((each for each in lines if is_authors(each[0])), None)


def in_no_library(plugins: Iterable[Plugin], info: BackendInfo) -> Callable[[str], bool]:
    """What tells whether a file is in none of a learner's libraries.

    Args:
        plugins: the learner's; one of them is its backend.
        info: what the backend says of itself.

    Returns:
        A function of the file's name.
    """
    backends = [each for each in plugins if each.tier == "backend"]
    packages = {"plugrad", "numpy", *info.packages, *map(_package, backends)}
    packages |= {name for each in backends for name in _required(each.name)}
    libraries = ("<", *(place for package in sorted(packages) for place in _places(package)))
    return lambda file: not file.startswith(libraries)


def _package(plugin: Plugin) -> str:
    implementation = plugin.implementation
    is_module = isinstance(implementation, ModuleType)
    name = implementation.__name__ if is_module else type(implementation).__module__
    return str(name).partition(".")[0]


def _required(backend: str) -> set[str]:
    """The packages of the distributions that it needs, if they are named alike."""
    owners = [owner for entry, owner in entries("backend") if entry.name == backend]
    return {name.replace("-", "_") for owner in owners for name in needed(owner, backend)[0]}


def _places(package: str) -> list[str]:
    """Folders that end in a separator, and files."""
    module = sys.modules.get(package)
    if folders := getattr(module, "__path__", ()):
        return [os.path.join(folder, "") for folder in folders]
    file = getattr(module, "__file__", None)
    return [file] if file else []
