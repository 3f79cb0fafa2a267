"""Mappings in an order that no hook promises: sorted, and the other way round at the lines that a probe chooses.

Hooks get them; what they give comes back as them.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NoReturn

from plugrad.hooks.author_line import Line
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
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


_READ_ONLY = ("batch", "fwd_out")
_GRADIENTS = ("gradients", "gradients_dict", "module_gradients_dict", "param_dict")
_HOOKS = (
    *(
        "compute_losses",
        "compute_loss_for_module",
        "postprocess_gradients",
        "postprocess_gradients_for_module",
    ),
    *("apply_gradients", "filter_param_dict_for_optimizer", "_reduce_gradients"),
)

Wrapper = Generator[None, Any, Any]


def give_unordered(learner: LearnerProtocol) -> None:
    """From now on, call the learner's traced hooks with mappings in another order; a batch cannot be changed."""
    for name in _HOOKS:
        method = getattr(learner, name)
        if not hasattr(method, "__strict__"):
            setattr(learner, name, _converting(method))


def _converting(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = {name: _given(name, value) for name, value in kwargs.items()}
        return _answer(method(*[_gradients(each) for each in args], **named))

    vars(call)["__strict__"] = True
    return call


def _given(name: str, value: Any) -> Any:
    if name in _READ_ONLY:
        return unchangeable(value)
    return _gradients(value) if name in _GRADIENTS else value


def _gradients(value: Any) -> Any:
    return unordered(value.items()) if isinstance(value, Mapping) else value


_answer = _gradients


@hookimpl(wrapper=True)
def compute_losses() -> Wrapper:
    """Losses in another order."""
    return _answer((yield))


@hookimpl(wrapper=True)
def postprocess_gradients() -> Wrapper:
    """Gradients in another order."""
    return _answer((yield))


@hookimpl(wrapper=True)
def postprocess_gradients_for_module() -> Wrapper:
    """Gradients in another order."""
    return _answer((yield))
