"""How large the settings of a file may be, looked at before anything is made of them.

A file of a few bytes can ask for a space, a network or a number of processes that no machine has. Shapes of networks
are compared with the weights that a checkpoint has (`plugrad.learner.expected_weights`); what has no counterpart there
has a limit here. Knows settings as plain data.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final

import numpy as np

from plugrad.config.serialize import SPACE_KEY
from plugrad.errors import ConfigError

MAX_VALUES: Final = 50_000
"""Single values in all settings together, those of spaces apart."""
MAX_SPACE_BYTES: Final = 2**24
"""One bound of all spaces together, unless the file has more than that in arrays."""
MAX_NUMBERS: Final = {"num_learners": 256, "num_env_runners": 256, "num_envs_per_env_runner": 1024}
"""Processes and environments that are made on a file's word."""


def check_size(data: Mapping[str, Any], *, stored_bytes: int = 0) -> None:
    """Refuse settings that would take much more to build than to write.

    Args:
        data: settings as a file has them: flat, or in a table per section.
        stored_bytes: what the arrays of the checkpoint take that they belong to.

    Raises:
        ConfigError: names what is too large, the limit, and what was found.
    """
    number, size = 0, 0
    for key, value in _values(data):
        if isinstance(value, Mapping):
            size += _bytes_of_space(value)
        else:
            number += 1
            _check_number(key, value)
    if number > MAX_VALUES:
        raise ConfigError(f"the settings have {number} values; from a file at most {MAX_VALUES} are taken")
    limit = max(MAX_SPACE_BYTES, stored_bytes)
    if size > limit:
        raise ConfigError(
            f"the spaces have bounds of {size} bytes; from a file at most {limit} are taken: build from your own "
            "config and restore_from_path"
        )


def _values(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every single value with its key, and every space as the dict that it is; a container counts as a value too."""
    rest: list[tuple[str, Any]] = list(data.items())
    while rest:
        key, value = rest.pop()
        yield key, value if isinstance(value, Mapping) and SPACE_KEY in value else None
        if isinstance(value, Mapping):
            numbers = ("low", "high", "nvec", "start") if SPACE_KEY in value else ()
            rest += [(str(name), each) for name, each in value.items() if name not in numbers]
        elif isinstance(value, list):
            rest += [(key, each) for each in value]
        else:
            yield key, value


def _bytes_of_space(space: Mapping[str, Any]) -> int:
    shape = space.get("shape")
    if not isinstance(shape, list) or not all(type(each) is int and each >= 0 for each in shape):
        return 0  # no Box, or one that is refused when it is made
    try:
        return prod(shape) * np.dtype(str(space.get("dtype"))).itemsize
    except TypeError:
        return 0


def _check_number(name: str, value: Any) -> None:
    limit = MAX_NUMBERS.get(name)
    if limit is not None and isinstance(value, int | float) and value > limit:
        raise ConfigError(
            f"{name}={value:g}: from a file at most {limit} are taken; build from your own config and "
            "restore_from_path",
            field=name,
            found=value,
        )
