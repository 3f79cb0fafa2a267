"""Batches for users' own modules: observations of a Dict or Tuple are in the structure of the space."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad import numpy_ops
from plugrad.batch import Rows
from plugrad.columns import Columns
from plugrad.observations import in_structure, is_structured


def with_structured_obs(module: Any, batch: Any) -> Any:
    """Put OBS into the structure of a module's Dict or Tuple space; any other batch is returned unchanged.

    Args:
        module: an RLModule; a built-in network reads rows.
        batch: `{column: tensor}`, with OBS as rows or already in the structure.

    Returns:
        The batch; a new one if OBS is changed.
    """
    space = module.observation_space
    if not is_structured(space) or module.network is not None or Columns.OBS not in batch:
        return batch
    rows = batch[Columns.OBS]
    if isinstance(rows, Mapping | tuple):
        return batch
    ops = numpy_ops if isinstance(rows, np.ndarray) else module.ops
    structured = {Columns.OBS: in_structure(ops, space, rows)}
    return batch.with_columns(structured) if isinstance(batch, Rows) else {**batch, **structured}
