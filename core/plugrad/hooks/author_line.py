"""Find the author's line for an error: the innermost line in a file that is not a library's.

A learner's libraries are plugrad and its backend, with the framework that the backend's distribution requires and the
packages that `BackendInfo` names. Algorithms and models are author's code, wherever they are installed.
"""

import os
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

from plugrad.hooks.backend_types import BackendInfo
from plugrad.hooks.entry_points import entries, needed
from plugrad.hooks.manager import Plugin

Line = tuple[str, int]
"""A file and a line number."""


def author_line(lines: Iterable[Line], is_authors: Callable[[str], bool]) -> Line | None:
    """Find the line of an author.

    Args:
        lines: innermost first, such as from `plugrad.hooks.backend_helpers.calling_lines()`.
        is_authors: tells whether a file is an author's, such as the function from `in_no_library`.

    Returns:
        The first line of such a file, or None.
    """
    return next((each for each in lines if is_authors(each[0])), None)


def in_no_library(plugins: Iterable[Plugin], info: BackendInfo) -> Callable[[str], bool]:
    """Make a function that tells whether a file is outside a learner's libraries.

    Args:
        plugins: the learner's plugins; one of them is its backend.
        info: the backend's description.

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
