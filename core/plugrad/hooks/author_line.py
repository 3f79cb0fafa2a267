"""The author's line that an error is about: the innermost one that is in no library.

A learner's libraries are plugrad and its backend, with the framework that the backend's distribution requires and the
packages that `BackendInfo` names. An algorithm or a model is an author's, wherever it is installed.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

from plugrad.hooks.backend_types import BackendInfo
from plugrad.hooks.entry_points import entries, needed
from plugrad.hooks.manager import Plugin


def author_line(lines: Iterable[tuple[str, int]], libraries: Sequence[str]) -> tuple[str, int] | None:
    """Find the line of an author.

    Args:
        lines: `(file, line)`, innermost first, such as those of `plugrad.hooks.backend_helpers.calling_lines()`.
        libraries: of `library_files`.

    Returns:
        The first line that is in no library, or None.
    """
    return next((each for each in lines if not each[0].startswith((*libraries, "<"))), None)


def library_files(plugins: Iterable[Plugin], info: BackendInfo) -> tuple[str, ...]:
    """Where the code of a learner's libraries is.

    Args:
        plugins: the learner's; one of them is its backend.
        info: what the backend says of itself.

    Returns:
        Folders that end in a separator, and files.
    """
    backends = [each for each in plugins if each.tier == "backend"]
    packages = {"plugrad", "numpy", *info.packages, *map(_package, backends)}
    packages |= {name for each in backends for name in _required(each.name)}
    return tuple(place for package in sorted(packages) for place in _places(package))


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
    module = sys.modules.get(package)
    if folders := getattr(module, "__path__", ()):
        return [os.path.join(folder, "") for folder in folders]
    file = getattr(module, "__file__", None)
    return [file] if file else []
