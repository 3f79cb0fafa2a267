"""Whether XLA compiles what is traced now. Acting and some programs run without it, with TensorFlow's own kernels."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _OfThisThread(threading.local):
    """Each thread has its own: one thread may act while another trains."""

    xla_compiles = True


_now = _OfThisThread()


def xla_compiles() -> bool:
    """False within `without_xla` of the same thread."""
    return _now.xla_compiles


@contextmanager
def without_xla() -> Iterator[None]:
    """XLA does not compile what this thread traces in the block."""
    before, _now.xla_compiles = _now.xla_compiles, False
    try:
        yield
    finally:
        _now.xla_compiles = before
