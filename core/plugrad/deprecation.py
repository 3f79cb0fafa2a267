"""Names that changed: the older one works, with a `DeprecationWarning` that says what to write."""

import warnings
from collections.abc import Callable
from typing import Any


class renamed:
    """A class attribute that stands for another one: `tell = renamed("notify")`.

    Args:
        new: the attribute's name of today.
    """

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._old = name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        warn_renamed(f"{owner.__name__}.{self._old}", f"{owner.__name__}.{self._new}")
        return getattr(owner if instance is None else instance, self._new)


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn of an older name.

    Args:
        old: the name that was used.
        new: what to write.
        stacklevel: whose line the warning names, counted from here: 3 is the caller of who calls this.
    """
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=stacklevel)


def renamed_names(module: str, names: dict[str, tuple[str, Any]]) -> Callable[[str], Any]:
    """A module's `__getattr__` for names that changed.

    Args:
        module: the module's name.
        names: `{older name: (name of today, what it stands for)}`.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, value = names[name]
        warn_renamed(f"{module}.{name}", f"{module}.{new}")
        return value

    return find
