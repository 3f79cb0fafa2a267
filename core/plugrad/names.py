"""Classes and functions by name: `"package.module:Name"`.

A config is data: what it refers to in code it keeps by a name that any other process can import. Names are
resolved where they are used, never while a file is read.
"""

import importlib
import sys
from typing import Any

from plugrad.errors import ConfigError, did_you_mean


def importable_name(value: Any) -> str | None:
    """`"package.module:Name"` of a class or function, or None if it cannot be imported by that name."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return f"{module}:{qualname}" if found is value else None


def resolve_name(name: str, *, where: str = "name") -> Any:
    """Import what `"package.module:Name"` names.

    Args:
        name: the module, a colon, and the attribute (dots reach into classes).
        where: the setting that holds the name, for the error.

    Raises:
        ConfigError: the text has no colon, the module cannot be imported, or it has no such attribute.
    """
    module_name, colon, qualname = name.partition(":")
    if not (module_name and colon and qualname):
        raise ConfigError(
            f'{where}: {name!r} names nothing importable; write "package.module:Name"', name=name
        )
    found: Any = _import(module_name, name, where)
    for part in qualname.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, vars(found))
            raise ConfigError(f"{where}: {name!r}: {module_name} has no {part!r}.{hint}", name=name)
        found = getattr(found, part)
    return found


def _import(module_name: str, name: str, where: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        lost = isinstance(error, ModuleNotFoundError) and error.name == module_name.split(".")[0]
        hint = "; the current directory is searched only with PYTHONPATH=." if lost else ""
        raise ConfigError(f"{where}: {name!r} cannot be imported: {error}{hint}", name=name) from error
