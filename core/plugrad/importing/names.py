"""Names of classes and functions, `"package.module:Name"`.

Configs keep classes and functions by such names, which any other process can import. A name is resolved where it is
used, never while a file is read.
"""

import importlib
import json
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import distributions, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any
from urllib.parse import unquote, urlparse
from weakref import WeakKeyDictionary

from plugrad.errors import ConfigError, did_you_mean

_WHERE_PYTHON_LOOKS = (
    ". Is it installed? The current folder is searched for what is typed on the command line, and with "
    "PYTHONPATH=."
)


_variables: WeakKeyDictionary[FunctionType, str | None] = WeakKeyDictionary()
"""What was found: to look through all modules takes some hundredths of a second."""


def importable_name(value: Any) -> str | None:
    """`"package.module:Name"` of a class or function, or None if it cannot be imported by such a name.

    A function that another one made, such as PettingZoo's `simple_spread_v3.parallel_env`, has the name of a module's
    variable that holds it.
    """
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is value:
        return f"{module}:{qualname}"
    return _name_of_variable(value) if isinstance(value, FunctionType) and "<locals>" in qualname else None


_is_main_elsewhere = False


def main_is_elsewhere() -> None:
    """Say that objects of `__main__` come from another process, in whose `__main__` they have their names."""
    global _is_main_elsewhere
    _is_main_elsewhere = True


def name_to_save(value: Any) -> str | None:
    """The `importable_name` of a class or function, in this process or in the one that sent it.

    A file gets this name: the process that reads it imports it, not this one.
    """
    qualname = getattr(value, "__qualname__", "<")
    is_of_sender = (
        _is_main_elsewhere and getattr(value, "__module__", None) == "__main__" and "<" not in qualname
    )
    return f"__main__:{qualname}" if is_of_sender else importable_name(value)


def name_of_unnamed(value: Any) -> str:
    """What a class or function is called that cannot be imported: "module:<lambda>", which nobody can import."""
    module, qualname = (getattr(value, f"__{part}__", None) for part in ("module", "qualname"))
    named = (
        qualname if isinstance(qualname, str) and "<" in qualname else f"<{qualname or type(value).__name__}>"
    )
    return f"{module if isinstance(module, str) else type(value).__module__}:{named}"


def is_unnamed(name: Any) -> bool:
    """Whether a name is what `name_of_unnamed` says."""
    return isinstance(name, str) and "<" in name


def _name_of_variable(value: FunctionType) -> str | None:
    """The name of a variable of an imported module; of several the one in an installed package, and the shortest."""
    if value not in _variables:
        _variables[value] = _find_variable(value)
    return _variables[value]


def _find_variable(value: FunctionType) -> str | None:
    places = [
        (name, variable)
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        for variable, each in list(vars(module).items())
        if each is value and not variable.startswith("_")
    ]
    places.sort(key=lambda place: (not is_installed(place[0]), place[0].count("."), *place))
    return ":".join(places[0]) if places else None


def resolve_name(name: str, *, where: str = "name") -> Any:
    """Import the class, function or object that a name stands for.

    Args:
        name: the module, a colon, and the attribute, which may have dots: "package.module:Class.Inner".
        where: the setting that has the name, for the error.

    Returns:
        The object.

    Raises:
        ConfigError: the name has no colon, the module cannot be imported, or it has no such attribute.
    """
    module_name, colon, qualname = name.partition(":")
    if not (module_name and colon and qualname):
        raise ConfigError(
            f'{where}: {name!r} names nothing importable; write "package.module:Name"', name=name
        )
    found: Any = import_named(module_name, name, where=where)
    for part in qualname.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, vars(found))
            raise ConfigError(f"{where}: {name!r}: {module_name} has no {part!r}.{hint}", name=name)
        found = getattr(found, part)
    return found


def in_main_by_value(value: Any, *, where: str) -> Any:
    """Replace names of what a script or notebook defines by the objects, which cloudpickle sends to other processes.

    Another process cannot import the names of this one's `__main__`.

    Args:
        value: a name, another object, or a list or tuple of these, also nested.
        where: the setting that has it, for the error.

    Returns:
        The value with objects in place of names `"__main__:Name"`; one that `is_unnamed` stays.

    Raises:
        ConfigError: `__main__` has no such attribute.
    """
    if isinstance(value, str) and value.startswith("__main__:") and not is_unnamed(value):
        return resolve_name(value, where=where)
    if type(value) in (list, tuple):
        return type(value)(in_main_by_value(each, where=where) for each in value)
    return value


def import_named(module_name: str, name: str, *, where: str) -> ModuleType:
    """Import the module of a name.

    Args:
        module_name: the part of `name` before the colon.
        name: the whole name, for the error.
        where: the setting that has the name, for the error.

    Returns:
        The module.

    Raises:
        ConfigError: it is no name of a module, such as a file's path, or it cannot be imported.
    """
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(
            f'{where}: {name!r}: {module_name!r} is not the name of a module; write "package.module:Name", '
            'such as "myenvs:Name" for a file myenvs.py',
            name=name,
        )
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        lost = isinstance(error, ModuleNotFoundError) and error.name == module_name.split(".")[0]
        hint = _WHERE_PYTHON_LOOKS if lost else ""
        raise ConfigError(f"{where}: {name!r} cannot be imported: {error}{hint}", name=name) from error


def is_local_plugin(text: str) -> bool:
    """Whether a plugin is named by a file or a module, not by an entry point."""
    return text.endswith(".py") or ":" in text


# --- modules that belong to installed packages ---


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
    return package in owners_of_packages() or _are_inside(places, _editable_folders())


@cache
def owners_of_packages() -> Mapping[str, list[str]]:
    """`{package: the distributions that bring it}`; looked up once, because it asks for each file that is installed."""
    return packages_distributions()


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
