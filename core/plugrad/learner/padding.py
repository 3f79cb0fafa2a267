"""Shapes that seldom change, for programs that are compiled for a shape: rows up to a power of two, steps in pieces.

The table of row numbers grows with the epochs. In pieces of one size its copies for the framework do not, and neither
does the number of compilations. Knows arrays, no program and no framework.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from plugrad.types import Array, ModuleID

Order = Mapping[ModuleID, Array]

LEAST_ROWS = 16
MOST_NUMBERS = 1 << 18
"""Row numbers of a module in one piece: a MiB of them."""


def padded(values: Array, rows: int = 0) -> Array:
    """Zeros behind `values`, up to so many rows; by default to the next power of two, at least `LEAST_ROWS`."""
    rows = rows or max(LEAST_ROWS, 1 << (len(values) - 1).bit_length())
    if rows == len(values):
        return values
    filled = np.zeros((rows, *values.shape[1:]), values.dtype)
    filled[: len(values)] = values
    return filled


def pieces(order: Order) -> Iterator[tuple[dict[ModuleID, Array], int]]:
    """The steps in order: `({module_id: padded rows}, how many steps)`, of one shape if there are several.

    Args:
        order: `{module_id: [num steps, minibatch size]}`, at least one step.
    """
    num_steps = len(next(iter(order.values())))
    most = max(LEAST_ROWS, MOST_NUMBERS // max(each.shape[1] for each in order.values()))
    size = 0 if num_steps <= most else most
    for start in range(0, num_steps, most):
        end = min(start + most, num_steps)
        yield {module_id: padded(each[start:end], size) for module_id, each in order.items()}, end - start
