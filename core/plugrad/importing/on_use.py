"""Packages that are imported when they are used, and those of extras, which may be missing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from plugrad.errors import MissingFrameworkError


def imported_on_use(
    package: str, places: Mapping[str, str], otherwise: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package: a name is imported once; so are modules of the package.

    A package hides them from type checkers, by `if not TYPE_CHECKING`, and shows them imports in their place.

    Args:
        package: its `__name__`.
        places: `{name: the module that defines it}`.
        otherwise: asked for any other name; returns its value, or raises AttributeError. None: there are no others.

    Returns:
        The two functions.
    """

    def get(name: str) -> Any:
        if name in places:
            value = getattr(import_module(places[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(sys.modules[package]), *places})


def require_extra(package: str, extra: str, use: str) -> None:
    """Check that a package of an extra is installed.

    Args:
        package: the name to import.
        extra: of plugrad, that installs it.
        use: what needs it.

    Raises:
        MissingFrameworkError: it is missing; says what to type.
    """
    if find_spec(package) is None:
        raise MissingFrameworkError(
            f'{use} needs {package}: pip install "plugrad[{extra}]"', requires=package
        )
