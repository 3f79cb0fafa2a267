"""Which rows make which minibatch: RLlib's cyclic rule, decided once per update, in numpy.

Every minibatch has exactly `minibatch_size` rows of every module. Each module's rows are walked in passes, shuffled or
not, without a gap between passes; the last minibatch runs into the next pass. 64 rows in minibatches of 25 make 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from plugrad.errors import BatchError, ConfigError
from plugrad.types import Array, ModuleID


@dataclass(frozen=True)
class Cut:
    """How one update cuts its batch.

    Args:
        minibatch_size: rows per module and minibatch; None for the whole batch at once.
        num_epochs: passes over the widest module's rows.
        shuffle: draw a new order for each pass.
        num_total_minibatches: if > 0, exactly so many minibatches, whatever the epochs.
        accumulate: minibatches per optimizer step; their number is rounded up to a multiple of it, and without a
            size the whole batch is cut into so many.
    """

    minibatch_size: int | None = None
    num_epochs: int = 1
    shuffle: bool = False
    num_total_minibatches: int = 0
    accumulate: int = 1

    def __post_init__(self) -> None:
        for name, least in (("minibatch_size", 1), ("num_epochs", 1), ("num_total_minibatches", 0)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | np.integer) and value >= least):
                raise ConfigError(f"{name}={value!r}: must be a whole number and at least {least}")


def indices(
    rows: Mapping[ModuleID, int], cut: Cut, streams: Mapping[ModuleID, np.random.Generator]
) -> dict[ModuleID, Array]:
    """Row numbers `{module_id: int32 [num steps, accumulate * minibatch size]}`.

    The minibatches of a step are interleaved: number i is `[i::accumulate]`.

    Args:
        rows: number of rows of each module, at least 1.
        cut: how to cut.
        streams: the generator of each module; used only to shuffle.

    Raises:
        BatchError: `minibatch_size` is above the rows of the widest module.
    """
    widest = max(rows.values())
    if cut.minibatch_size is not None and cut.minibatch_size > widest:
        module_id = max(rows, key=lambda each: rows[each])
        raise BatchError(
            f"minibatch_size={cut.minibatch_size} is above the {widest} rows of module {module_id!r}: "
            "give more rows or a smaller minibatch_size",
            module_id=module_id,
            expected=cut.minibatch_size,
            found=widest,
        )
    size, parts = cut.minibatch_size, cut.accumulate
    count = cut.num_total_minibatches or (
        cut.num_epochs * parts if size is None else ceil(cut.num_epochs * widest / size)
    )
    count = ceil(count / parts) * parts
    shuffle = cut.shuffle and size is not None
    walks = {
        module_id: _walk(number, count, size or ceil(number / parts), shuffle, streams[module_id])
        for module_id, number in rows.items()
    }
    return {module_id: _interleaved(walk, parts) for module_id, walk in walks.items()}


def _interleaved(walk: Array, parts: int) -> Array:
    count, size = walk.shape
    return walk.reshape(count // parts, parts, size).swapaxes(1, 2).reshape(count // parts, parts * size)


def _walk(rows: int, count: int, size: int, shuffle: bool, stream: np.random.Generator) -> Array:
    passes = ceil(count * size / rows)
    order = np.empty((passes, rows), np.int32)
    for each in order:
        each[:] = stream.permutation(rows) if shuffle else np.arange(rows)
    return order.reshape(-1)[: count * size].reshape(count, size)
