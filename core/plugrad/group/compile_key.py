"""Whether an update is like an earlier one: then its program is compiled already, and `timeout_s` applies to it."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def compile_key(given: Any, settings: Mapping[str, Any]) -> Any:
    """What a compiled program may depend on.

    Args:
        given: a batch in one of its forms, or episodes.
        settings: of the update.
    """
    sizes = tuple(sorted((name, value) for name, value in settings.items() if isinstance(value, int)))
    modules = getattr(given, "policy_batches", given)
    if not isinstance(modules, Mapping):
        return "episodes", sizes
    return sizes, tuple(_of(str(name), each) for name, each in modules.items())


def _of(name: str, given: Any) -> Any:
    if isinstance(given, Mapping):
        return name, tuple(_of(str(column), values) for column, values in given.items())
    try:
        rows, *rest = np.shape(given) or (0,)
    except ValueError:  # lists of different lengths: the learners refuse them, and say where
        return name, "no array"
    return name, tuple(rest), rows.bit_length()
