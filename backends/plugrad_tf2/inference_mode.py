"""Whether what is traced now will be differentiated. Acting will not, and runs without XLA: ops may know better."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _OfThisThread(threading.local):
    """Each thread begins with its own: one that acts says nothing about one that trains."""

    gradients_are_taken = True


_now = _OfThisThread()


def gradients_are_taken() -> bool:
    """False within `inference_mode` of the same thread."""
    return _now.gradients_are_taken


@contextmanager
def inference_mode() -> Iterator[None]:
    """What this thread traces meanwhile computes values only, without XLA."""
    before, _now.gradients_are_taken = _now.gradients_are_taken, False
    try:
        yield
    finally:
        _now.gradients_are_taken = before
