"""Mappings in an order that no hook promises: sorted, and the other way round at the lines that a probe chooses."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

from plugrad.hooks.author_line import Line
from plugrad.testing.strict.refusal import authors_line, refuse

IsReversed = Callable[[Line], bool]

_is_reversed: ContextVar[IsReversed | None] = ContextVar("which lines iterate in reverse", default=None)


class Unordered(dict[str, Any]):
    """A dict whose order is not that in which it was made."""

    def __iter__(self) -> Iterator[str]:
        ask = _is_reversed.get()
        return iter(sorted(super().__iter__(), reverse=ask is not None and ask(authors_line())))

    def keys(self) -> Any:
        """In the order of `__iter__`."""
        return list(self)

    def values(self) -> Any:
        """In the order of `__iter__`."""
        return [self[key] for key in self]

    def items(self) -> Any:
        """In the order of `__iter__`."""
        return [(key, self[key]) for key in self]

    def __copy__(self) -> "Unordered":
        return Unordered(dict.items(self))


def _refuse_change(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    refuse(
        "a batch or the outputs of a forward pass are changed: others read them too, maybe again",
        "Make a new dict, {**batch, column: tensor}, or rows.with_columns({column: tensor})",
    )


class Unchangeable(Unordered):
    """An `Unordered` that belongs to the learner."""

    __setitem__ = __delitem__ = __ior__ = _refuse_change
    update = pop = popitem = setdefault = clear = _refuse_change

    def __copy__(self) -> Unordered:
        return Unordered(dict.items(self))


@contextmanager
def iterated(is_reversed: IsReversed) -> Iterator[None]:
    """Ask at each iteration of an `Unordered` whether this line gets the reversed order."""
    token = _is_reversed.set(is_reversed)
    try:
        yield
    finally:
        _is_reversed.reset(token)


def unordered(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An `Unordered` of items."""
    return Unordered(items)


def unchangeable(tree: Any) -> Any:
    """A dict and the dicts in it as `Unchangeable`; anything else as it is."""
    if type(tree) in (dict, Unordered, Unchangeable):
        return Unchangeable((key, unchangeable(value)) for key, value in tree.items())
    return tree
