"""Names of a framework that are not public: each is asked for, and where it is missing something else is done.

A backend lists them in its file `versions.py`. `learner.update_mode` says what is missing while it matters;
`plugrad doctor` looks it up in the framework's files, because it imports no framework.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plugrad.importing.names import owners_of_packages


class MissingName(Exception):
    """A framework lacks a private name. The message says which, and what is done without it."""


@dataclass(frozen=True)
class PrivateName:
    """A private name of a framework.

    Attributes:
        module: where it is, such as "torch._inductor.exc".
        name: in that module, such as "InvalidCxxCompiler"; with dots for an attribute of a class.
        without: what is done without it, such as "updates are not compiled".
        file: the file of the framework that names it, such as "_C/__init__.pyi"; "": that of the module.
    """

    module: str
    name: str
    without: str
    file: str = ""

    @property
    def reason(self) -> str:
        """That this version lacks it, and what is done instead."""
        framework = self.module.partition(".")[0]
        return f"{framework} {_version_of(framework)} has no {self.module}.{self.name}: {self.without}"

    def find(self) -> Any:
        """What it names; None if it is missing. The module is imported."""
        return _find(self)

    def get(self) -> Any:
        """What it names.

        Raises:
            MissingName: it is missing.
        """
        found = _find(self)
        if found is None:
            raise MissingName(self.reason)
        return found

    def is_in_files(self) -> bool:
        """Whether the framework's files name it. Nothing is imported, and a name that is only imported there counts."""
        top, *inner = self.module.split(".")
        spec = find_spec(top)
        for folder in (spec and spec.submodule_search_locations) or ():
            path = Path(folder, *inner)
            # Of a module that is compiled, the types say what is in it.
            usual = (path.with_suffix(".py"), path / "__init__.py", path / "__init__.pyi")
            for file in (Path(folder, self.file),) if self.file else usual:
                if file.is_file():
                    said = file.read_text(encoding="utf-8", errors="replace")
                    if re.search(rf"\b{re.escape(self.name.rpartition('.')[2])}\b", said):
                        return True
        return False


def lacking(names: Iterable[PrivateName]) -> str:
    """What is done without those names that are missing; "" if none is. Their modules are imported.

    Args:
        names: private names of one framework.

    Returns:
        Reasons, with semicolons between them.
    """
    return "; ".join(each.reason for each in names if each.find() is None)


def lacking_in_files(names: Iterable[PrivateName]) -> str:
    """See `lacking`: looked up in the framework's files, without importing it.

    Args:
        names: private names of one framework.

    Returns:
        Reasons, with semicolons between them.
    """
    return "; ".join(each.reason for each in names if not each.is_in_files())


@cache
def _find(name: PrivateName) -> Any:
    try:
        found = import_module(name.module)
        for each in name.name.split("."):
            found = getattr(found, each)
    except (ImportError, AttributeError):
        return None
    return found


@cache
def _version_of(framework: str) -> str:
    """Of a distribution, or of the first that brings a module of the name."""
    try:
        return version(framework)
    except PackageNotFoundError:
        owners = owners_of_packages().get(framework)
        return version(owners[0]) if owners else "of an unknown version"
