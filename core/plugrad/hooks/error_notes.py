"""Notes on errors: which plugin raised them.

Wrappers and listeners may be third-party code around the user's own, so an error that one raises gets a note with its
name and the hook. An error that only passes through a wrapper gets no note.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from plugrad.errors import PluginError

_ONCE = "a wrapper must yield once: `return (yield)`"


def with_error_note(
    who: str, hook: str, function: Callable[..., Any], *, is_wrapper: bool
) -> Callable[..., Any]:
    """Wrap a plugin's function, so that errors that it raises itself get a note.

    Args:
        who: the plugin's name in the note.
        hook: the hook's name.
        function: the plugin's function; a generator function if it is a wrapper.
        is_wrapper: whether it wraps a hook.

    Returns:
        A function with the same arguments and marks.
    """
    make = _wrapper if is_wrapper else _listener
    return wraps(function)(make(f"raised by {who}, hook {hook!r}", function))


@contextmanager
def _noted(note: str, *, below: BaseException | None = None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if error is not below:
            error.add_note(note)
        raise


def _listener(note: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with _noted(note):
            return function(*arguments)

    return call


def _wrapper(note: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Generator[None, Any, Any]:
        wrapped = function(*arguments)
        with _noted(note):
            _begin(wrapped)
        answer = below = None
        try:
            answer = yield
        except BaseException as error:
            below = error
        with _noted(note, below=below):
            return _end(wrapped, answer, below)

    return call


def _begin(wrapped: Generator[Any, Any, Any]) -> None:
    for _ in wrapped:
        return
    raise PluginError(_ONCE)


def _end(wrapped: Generator[Any, Any, Any], answer: Any, below: BaseException | None) -> Any:
    try:
        wrapped.send(answer) if below is None else wrapped.throw(below)
    except StopIteration as end:
        return end.value
    raise PluginError(_ONCE)
