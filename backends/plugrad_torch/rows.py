"""Rows that are written where they lie: what a replay buffer on a device is filled with."""

from collections.abc import Mapping

import torch
from torch import Tensor


def write_rows(
    columns: Mapping[str, Tensor], places: Tensor, rows: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Write rows in place, as `BackendInfo` says of `write_rows`.

    Args:
        columns: `{name: [capacity, ...]}`.
        places: int64 `[N]`.
        rows: `{name: [N, ...]}`.

    Returns:
        The same columns.
    """
    with torch.no_grad():
        return {name: column.index_copy_(0, places, rows[name]) for name, column in columns.items()}
