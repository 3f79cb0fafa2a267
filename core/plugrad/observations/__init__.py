"""Rows of observations: how a Dict or Tuple observation is one array, and how a row becomes an observation again."""

from plugrad.observations.rows import choices_of_rows, flat_rows, in_structure, structured_rows
from plugrad.spaces.kinds import is_structured
from plugrad.spaces.layout import RowPart, model_space, row_parts, row_shape, row_space, stored_space

__all__ = [
    "RowPart",
    "choices_of_rows",
    "flat_rows",
    "in_structure",
    "is_structured",
    "model_space",
    "row_parts",
    "row_shape",
    "row_space",
    "stored_space",
    "structured_rows",
]
