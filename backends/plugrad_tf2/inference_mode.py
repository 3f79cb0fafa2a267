"""Whether what is traced now will be differentiated. Acting will not, and runs without XLA: ops may use faster code."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _OfThisThread(threading.local):
    """Each thread has its own: one thread may act while another trains."""

    gradients_are_taken = True


_now = _OfThisThread()


def gradients_are_taken() -> bool:
    """False within `inference_mode` of the same thread."""
    return _now.gradients_are_taken


@contextmanager
def inference_mode() -> Iterator[None]:
    """What this thread traces in the block is neither differentiated nor compiled by XLA."""
    before, _now.gradients_are_taken = _now.gradients_are_taken, False
    try:
        yield
    finally:
        _now.gradients_are_taken = before
