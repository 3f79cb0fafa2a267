"""One thread at a time: a learner's state is read and changed as a whole, never while another thread changes it."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class HasLock(Protocol):
    """What `locked` asks of an object: a lock that the thread which holds it may take again."""

    _lock: Any


Owner = TypeVar("Owner", bound=HasLock)


def new_lock() -> Any:
    """A re-entrant lock: hooks and listeners may call the learner that calls them."""
    return threading.RLock()


def locked(
    method: Callable[Concatenate[Owner, Given], Answer],
) -> Callable[Concatenate[Owner, Given], Answer]:
    """The method, called by one thread at a time: others wait until it is over."""

    @wraps(method)
    def call(self: Owner, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        with self._lock:
            return method(self, *args, **kwargs)

    return call
