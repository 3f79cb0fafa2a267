"""`plugrad.numpy_ops` for losses: with a `stop_gradient` that finite differences cannot see through.

A loss is evaluated again and again with moved parameters; what it stopped must not move with them. So the values of
the first evaluation are kept and given out again, in the order of the calls. What was computed in float64 stays so:
rounded to float32, as a loss may ask for the sake of other backends, small differences would drown.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from plugrad import numpy_ops
from plugrad.numpy_ops import *  # noqa: F403
from plugrad.types import Tensor


class _Constants:
    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._next = 0

    def rewind(self) -> None:
        self._next = 0

    def keep(self, x: Tensor) -> Tensor:
        if self._next == len(self._values):
            self._values.append(x)
        self._next += 1
        return self._values[self._next - 1]


_constants: list[_Constants] = []


def stop_gradient(x: Tensor) -> Tensor:  # type: ignore[no-redef]
    """`x`; inside `constants()` what it was in the first evaluation."""
    return _constants[-1].keep(x) if _constants else x


def cast(x: Tensor, dtype: str) -> Tensor:  # type: ignore[no-redef]
    """`x` in another dtype; float64 in place of float32 if it has that already."""
    wide = dtype == "float32" and getattr(x, "dtype", None) == np.float64
    return numpy_ops.cast(x, "float64" if wide else dtype)


@contextmanager
def constants() -> Iterator[Callable[[], None]]:
    """Keep what `stop_gradient` returns; yields a function to call before every further evaluation."""
    _constants.append(_Constants())
    try:
        yield _constants[-1].rewind
    finally:
        _constants.pop()
