"""Whether what is traced now will be differentiated. Acting will not, and runs without XLA: ops may know better."""

from collections.abc import Iterator
from contextlib import contextmanager

_gradients_are_taken = [True]


def gradients_are_taken() -> bool:
    """False within `values_only`."""
    return _gradients_are_taken[-1]


@contextmanager
def values_only() -> Iterator[None]:
    """What is traced meanwhile computes values only, without XLA."""
    _gradients_are_taken.append(False)
    try:
        yield
    finally:
        _gradients_are_taken.pop()
