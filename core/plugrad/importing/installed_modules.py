"""Imports of modules that belong to installed packages."""

import importlib
import json
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import distributions, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import ModuleType
from urllib.parse import unquote, urlparse

_path_is_changed = RLock()
"""`sys.path` is one for all threads: two that change it at once would put back what the other had left out."""


def import_installed(name: str) -> ModuleType | None:
    """Import a module if it belongs to an installed package; else None.

    A module that is imported already counts as installed. The current folder is not searched. Modules of the standard
    library, and those whose name begins with `__`, are not imported, because the import itself may have effects.
    """
    if name in sys.modules:
        return sys.modules[name]
    with _path_is_changed, _without_current_folder():
        return importlib.import_module(name) if is_installed(name) else None


def is_installed(name: str) -> bool:
    """Whether a module belongs to an installed package. It is not imported."""
    parts = name.split(".")
    if not all(part.isidentifier() and not part.startswith("__") for part in parts):
        return False
    if parts[0] in sys.stdlib_module_names:
        return False
    try:
        spec = find_spec(parts[0])
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(places) and (_are_inside(places, _site_folders()) or _is_distributed(parts[0], places))


def _are_inside(places: list[str], folders: frozenset[Path]) -> bool:
    return all(any(Path(place).resolve().is_relative_to(each) for each in folders) for place in places)


@cache
def _site_folders() -> frozenset[Path]:
    paths = sysconfig.get_paths()
    folders = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return frozenset(Path(each).resolve() for each in folders)


def _is_distributed(package: str, places: list[str]) -> bool:
    """Whether a distribution lists the package as its own, or an editable installation has it in its folder."""
    return package in _packages() or _are_inside(places, _editable_folders())


@cache
def _packages() -> frozenset[str]:
    return frozenset(packages_distributions())


@cache
def _editable_folders() -> frozenset[Path]:
    found = set()
    for each in distributions():
        text = each.read_text("direct_url.json")
        said = json.loads(text) if text else {}
        if said.get("dir_info", {}).get("editable"):
            found.add(Path(unquote(urlparse(said["url"]).path)).resolve())
    return frozenset(found)


@contextmanager
def _without_current_folder() -> Iterator[None]:
    before, here = list(sys.path), os.getcwd()
    sys.path[:] = [each for each in before if os.path.realpath(each or here) != os.path.realpath(here)]
    try:
        yield
    finally:
        sys.path[:] = before
