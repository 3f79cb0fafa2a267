"""Rows that are written where they lie: what a replay buffer on a device is filled with."""

from collections.abc import Mapping
from functools import partial

import jax


@partial(jax.jit, donate_argnums=0)
def write_rows(
    columns: Mapping[str, jax.Array], places: jax.Array, rows: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """Write rows, as `BackendInfo` says of `write_rows`: the program takes the memory of the columns for its results.

    Args:
        columns: `{name: [capacity, ...]}`.
        places: int64 `[N]`.
        rows: `{name: [N, ...]}`.

    Returns:
        Columns with the rows; those that were given are gone.
    """
    return {name: column.at[places].set(rows[name]) for name, column in columns.items()}
