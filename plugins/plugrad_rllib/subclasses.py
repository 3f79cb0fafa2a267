"""Adapters of classes: they see every subclass of a class of the core, those that exist and each new one."""

from collections.abc import Callable, Iterator
from typing import Any

ClassAdapter = Callable[[type[Any]], None]
_adapters: list[tuple[type[Any], ClassAdapter]] = []


def adapt_subclasses(base: type[Any], adapter: ClassAdapter) -> None:
    """Call an adapter with each subclass of a class: those that exist now, and each new one when it is made.

    Args:
        base: a class of the core that `HasOlderNames`.
        adapter: may set attributes of the class that it is given.
    """
    for cls in dict.fromkeys(_subclasses(base)):
        adapter(cls)
    _adapters.append((base, adapter))


def adapt_subclass(cls: type[Any]) -> None:
    """Call the adapters of its bases with a new class."""
    for base, adapter in _adapters:
        if issubclass(cls, base):
            adapter(cls)


def _subclasses(base: type[Any]) -> Iterator[type[Any]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _subclasses(cls)


def add_names(cls: type[Any], *sources: type[Any]) -> None:
    """Give a class the methods and properties that other classes define; subclasses reach them by `super()`.

    Args:
        cls: the class to extend.
        sources: classes that need no instance of their own: what they define is called with instances of `cls`.
    """
    for source in sources:
        for name, value in vars(source).items():
            if not (name.startswith("__") and name.endswith("__")):
                setattr(cls, name, value)
