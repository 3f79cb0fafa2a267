"""Seams for code that makes the names and arguments of an older API work.

Three things can be registered, and without a registration each seam does nothing:

- `adapt_subclasses(base, adapter)`: the adapter sees every subclass of an `Adaptable` class.
- `adapt_calls(method, adapter)`: the adapter runs the calls of an `@adaptable` method.
- `add_names` and `add_hints`: unknown names of a class are found, or lead to a hint.

`when_loaded(room, register)` registers when the room's classes are there: the older API loads nothing by itself.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
ClassAdapter = Callable[[type[Any]], None]
CallAdapter = Callable[..., Any]
"""`adapter(method, *args, **kwargs)`: calls the method with present arguments and returns what the caller expects."""

_class_adapters: list[tuple[type[Any], ClassAdapter]] = []
_hints: dict[str, str] = {}
_waiting: dict[str, Callable[[], None]] = {}


def when_loaded(room: str, register: Callable[[], None]) -> None:
    """Call a function once a room is imported.

    Args:
        room: the module's name; the module calls `loaded(__name__)` as its last line.
        register: called once; it may import the room.
    """
    _waiting[room] = register


def loaded(room: str) -> None:
    """Say that a module is complete, and call the functions that wait for it."""
    register = _waiting.pop(room, None)
    if register is not None:
        register()


class Adaptable:
    """A class whose subclasses may override methods by older names."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base, adapter in _class_adapters:
            if issubclass(cls, base):
                adapter(cls)


def adapt_subclasses(base: type[Any], adapter: ClassAdapter) -> None:
    """Call an adapter with each subclass of a class: those that exist now, and each new one when it is made.

    Args:
        base: an `Adaptable` class.
        adapter: may set attributes of the class that it is given.
    """
    for cls in dict.fromkeys(_subclasses(base)):
        adapter(cls)
    _class_adapters.append((base, adapter))


def _subclasses(base: type[Any]) -> Iterator[type[Any]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _subclasses(cls)


def adaptable(method: Callable[P, R]) -> Callable[P, R]:
    """Let calls of a method be adapted. A function that `functools.wraps` an adaptable method shares its adapter."""
    adapters: list[CallAdapter] = vars(method).setdefault("call_adapters", [])

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not adapters:
            return method(*args, **kwargs)
        answer: R = adapters[-1](method, *args, **kwargs)
        return answer

    return call


def is_adaptable(method: Callable[..., Any]) -> bool:
    """Whether the calls of a method can be adapted."""
    return "call_adapters" in vars(method)


def adapt_calls(method: Callable[..., Any], adapter: CallAdapter) -> None:
    """Let an adapter run the calls of an `@adaptable` method; it takes the place of a former one.

    Args:
        method: as its class has it.
        adapter: called as `adapter(method, *args, **kwargs)`; its answer is the call's.
    """
    vars(method)["call_adapters"][:] = [adapter]


def add_names(cls: type[Any], *sources: type[Any]) -> None:
    """Give a class the methods and properties that other classes define; subclasses reach them by `super()`.

    Args:
        cls: the class to extend.
        sources: classes that need no instance of their own: what they define is called with instances of `cls`.
    """
    for source in sources:
        for name, value in vars(source).items():
            if name == "__getattr__" or not (name.startswith("__") and name.endswith("__")):
                setattr(cls, name, value)


def add_hints(hints: Mapping[str, str]) -> None:
    """Register what to use in place of names that plugrad does not have: `{name: what to use}`."""
    _hints.update(hints)


def hint_for(name: str) -> str:
    """` Here: <what to use>.` for a name with a registered hint, else an empty text; appended to errors."""
    return f" Here: {_hints[name]}." if name in _hints else ""
