"""Overrides of older names: called in place of the new ones, never ignored.

`class Mine(Learner): def compute_loss(...)` was written for an RLlib that called `compute_loss`. So when such a class
is made, it gets a *bridge* under the new name, as if its author had written it: `compute_losses` calls the class's
`compute_loss`. Being a method of the class, the bridge is wrapped by plugins as any override is. While it runs, the
older base method (`super().compute_loss(...)`) leads to what lies beneath the bridge: the next class's
`compute_losses`, and so the provider, once and inside all wrappers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from inspect import getattr_static
from types import MethodType
from typing import Any

from plugrad_rllib.warning import warn_older

_BENEATH = "_beneath_bridges"
_CALLED = "_called_by_older_name"


@dataclass(frozen=True)
class Bridge:
    """From a method to the overrides of its older names.

    Args:
        new: the method that is called nowadays.
        olds: the older names.
        cross: `cross(self, beneath, *args, **kwargs)` calls the overrides with the arguments of their time and gives
            what `new` returns; `beneath` is `new` of the next class.
    """

    new: str
    olds: tuple[str, ...]
    cross: Callable[..., Any]


@cache
def same_arguments(new: str, old: str) -> Bridge:
    """The bridge between two names of one method."""
    return Bridge(new, (old,), lambda owner, below, *args, **kwargs: older(owner, old)(*args, **kwargs))


def older_method(old: str, new: str, instead: str | None = None) -> Callable[..., Any]:
    """A method of an older name that calls the one of today.

    Args:
        old: its name.
        new: the name of today.
        instead: what the warning says to use; default: `new`.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return newer(self, new, old, instead)(*args, **kwargs)

    method.__name__, method.__doc__ = old, f"`{new}`, by its older name."
    vars(method).update(old=old, new=new)
    return method


def honour_overrides(base: type[Any], bridges: Sequence[Bridge], cls: type[Any]) -> None:
    """Build the bridges that a new class needs, and warn of each older name that it overrides.

    Args:
        base: who has the older names' own methods.
        bridges: those that do more than call a method by its other name.
        cls: the class.
    """
    found: dict[str, list[str]] = {}
    for bridge in (*bridges, *_other_names(base, bridges)):
        for old in bridge.olds:
            if is_overridden(cls, base, old) and not _is_inherited(cls, base, old):
                found.setdefault(old, []).append(_honour(cls, bridge, old))
    for old, news in found.items():
        warn_older(f"{cls.__name__}.{old}, an override,", "; ".join(news))


def _other_names(base: type[Any], others: Sequence[Bridge]) -> list[Bridge]:
    """A bridge for each `older_method` of a class that the others do not serve."""
    served = {old for bridge in others for old in bridge.olds}
    found = [each for owner in base.__mro__ for each in vars(owner).values() if hasattr(each, "old")]
    return [same_arguments(each.new, each.old) for each in found if each.old not in served]


def is_overridden(cls: type[Any], base: type[Any], name: str) -> bool:
    """Whether a class has another method of this name than `base`."""
    return getattr_static(cls, name) is not getattr_static(base, name)


def _is_inherited(cls: type[Any], base: type[Any], name: str) -> bool:
    """Whether a parent has the same override: then it was seen to when that class was made."""
    parents = [each for each in cls.__bases__ if issubclass(each, base)]
    return not all(is_overridden(cls, parent, name) for parent in parents)


def _honour(cls: type[Any], bridge: Bridge, old: str) -> str:
    if getattr(getattr(cls, bridge.new), "bridge", None) is not bridge:
        if _owner(cls, bridge.new) in (cls, _owner(cls, old)):
            return f"{bridge.new} alone; it is called, and {old} only by the class itself"
        setattr(cls, bridge.new, _method(cls, bridge))
    return f"{bridge.new}, in place of which it is called"


def _owner(cls: type[Any], name: str) -> type[Any]:
    return next(each for each in cls.__mro__ if name in vars(each))


def _method(cls: type[Any], bridge: Bridge) -> Callable[..., Any]:
    @wraps(getattr(cls, bridge.new))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        next_method = getattr(super(cls, self), bridge.new)
        if is_beneath(self, bridge.new):
            return next_method(*args, **kwargs)  # super() of an override has come to another class's bridge
        with beneath(self, **{bridge.new: next_method}):
            return bridge.cross(self, next_method, *args, **kwargs)

    vars(method)["bridge"] = bridge
    return method


@contextmanager
def beneath(owner: Any, **methods: Callable[..., Any]) -> Iterator[None]:
    """While an override runs: what the older base methods lead to, by new name."""
    with _kept(owner, _BENEATH, methods):
        yield


@contextmanager
def _kept(owner: Any, where: str, more: dict[str, Any]) -> Iterator[None]:
    former = vars(owner).get(where, {})
    vars(owner)[where] = {**former, **more}
    try:
        yield
    finally:
        vars(owner)[where] = former


def is_beneath(owner: Any, new: str) -> bool:
    """Whether an override that stands for `new` is running."""
    return new in vars(owner).get(_BENEATH, {})


def newer(owner: Any, new: str, old: str, words: str | None = None) -> Callable[..., Any]:
    """What an older base method leads to: within its override what lies beneath, else, with a warning, `new`.

    Args:
        owner: the object whose method it is.
        new: the method of today.
        old: the older method, which calls this.
        words: what the warning says to use; default: `new`.
    """
    below: Callable[..., Any] | None = vars(owner).get(_BENEATH, {}).get(new)
    if below is not None:
        return below
    warn_older(f"{type(owner).__name__}.{old}()", words or f"{new}()")

    def method(*args: Any, **kwargs: Any) -> Any:
        with _kept(owner, _CALLED, {old: True}):
            return getattr(owner, new)(*args, **kwargs)

    return method


def is_called(owner: Any, old: str) -> bool:
    """Whether what runs was called by an older name, whose override need not be called again."""
    return old in vars(owner).get(_CALLED, {})


def older(owner: Any, old: str) -> Callable[..., Any]:
    """What a bridge calls: the override of an older name; where its super() has led here, the base's own method."""
    if not is_called(owner, old):
        method: Callable[..., Any] = getattr(owner, old)
        return method
    own = [vars(each)[old] for each in type(owner).__mro__ if old in vars(each)]
    return MethodType(own[-1], owner)


# --- classes of the core: more names, and every subclass, those that exist and each new one ---

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
