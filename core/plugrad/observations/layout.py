"""The layout of rows: which numbers of a row belong to which part of a Dict or Tuple observation.

A row has the parts in the order of `gymnasium.spaces.flatten`: Boxes raveled in C order, Discrete and MultiDiscrete
parts one-hot.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from plugrad.action_rows import leaves
from plugrad.errors import ConfigError
from plugrad.observations.images import is_image
from plugrad.types import Array


@dataclass(frozen=True, eq=False)
class RowPart:
    """One part of a row.

    Args:
        path: such as `['camera']` or `[0]['speed']`; empty for a space without parts.
        space: of the part: Box, Discrete, MultiDiscrete or MultiBinary.
        start: index of its first number in the row.
        stop: index after its last number.
    """

    path: str
    space: Space[Any]
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part, with Discrete and MultiDiscrete parts one-hot."""
        return _part_shape(self.path, self.space)

    @property
    def has_scale(self) -> bool:
        """Whether `normalize_observations` normalises the numbers: true for Boxes that are no images."""
        return isinstance(self.space, Box) and not is_image(self.space)


def row_parts(space: Space[Any]) -> list[RowPart]:
    """The parts of a row, in order; one part for a space without parts.

    Raises:
        ConfigError: a part is no array of numbers, or there are no parts.
    """
    parts: list[RowPart] = []
    start = 0
    for path, leaf in leaves(space):
        stop = start + prod(_part_shape(path, leaf))
        parts.append(RowPart(path, leaf, start, stop))
        start = stop
    if not parts:
        raise ConfigError(f"observations of {space} have no parts")
    return parts


def row_shape(space: Space[Any]) -> tuple[int, ...]:
    """The shape of one row: [numbers] of a Dict or Tuple, and that of a single observation of other spaces."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return (row_parts(space)[-1].stop,)
    return tuple(space.shape or ())


def row_space(space: Space[Any]) -> Box:
    """The space of rows as episodes store them: float32, or uint8 if every part is.

    Args:
        space: of observations: a Dict, a Tuple or a Box. That of a Box is its `stored_space`.

    Returns:
        A Box.

    Raises:
        ConfigError: it is another space, or one of its parts is no array of numbers.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        row_parts(space)
        return stored_space(spaces.flatten_space(space))
    return stored_space(space)


def model_space(space: Space[Any], *, normalized: bool = False) -> Space[Any]:
    """The observation space of a module that acts in an environment.

    Args:
        space: of one observation of the environment.
        normalized: whether the observations are normalised: then Boxes that are no images are float32 without bounds.

    Returns:
        A Dict or Tuple of the environment's structure, else a Box: see `stored_space`. Discrete, MultiDiscrete and
        MultiBinary observations are one-hot or flat rows.

    Raises:
        ConfigError: a part is no array of numbers.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = row_parts(space)
        if not normalized:
            return space
        return with_leaves(
            space, iter([stored_space(p.space, normalized=True) if p.has_scale else p.space for p in parts])
        )
    (whole,) = row_parts(space)
    return stored_space(
        spaces.flatten_space(space) if not isinstance(space, Box) else space,
        normalized=normalized and whole.has_scale,
    )


def with_leaves(space: Space[Any], inner: Iterator[Space[Any]]) -> Space[Any]:
    """A space of the same structure.

    Args:
        space: a Dict, a Tuple or a space without parts.
        inner: its parts, in the order of a row.

    Returns:
        A new space; a space without parts is the next of `inner`.
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, with_leaves(each, inner)) for key, each in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([with_leaves(each, inner) for each in space.spaces])
    return next(inner)


def stored_space(space: Space[Any], *, normalized: bool = False) -> Box:
    """The space of observations as episodes store them: uint8 for images, float32 for everything else.

    Args:
        space: a Box, such as that of flattened observations.
        normalized: whether the observations are normalised: then they are float32 without bounds.

    Returns:
        A Box of the same shape.

    Raises:
        ConfigError: `space` is no Box.
    """
    if not isinstance(space, Box):
        raise ConfigError(
            f"observations of a {type(space).__name__} space are not arrays; give a Box: {space}"
        )
    if normalized:
        return Box(-np.inf, np.inf, space.shape, np.float32)
    if space.dtype in (np.uint8, np.float32):
        return space
    return Box(_as_float32(space.low), _as_float32(space.high), dtype=np.float32)


def _as_float32(bound: Array) -> Array:
    limit = np.finfo(np.float32).max  # a float64 bound beyond it stands for no bound
    bound = np.where(bound > limit, np.inf, np.where(bound < -limit, -np.inf, bound))
    return bound.astype(np.float32)


def _part_shape(path: str, space: Space[Any]) -> tuple[int, ...]:
    if isinstance(space, Box | MultiBinary):
        return tuple(space.shape)
    if isinstance(space, Discrete):
        return (int(space.n),)
    if isinstance(space, MultiDiscrete):
        return (int(space.nvec.sum()),)
    raise ConfigError(
        f"observations{path} are of a {type(space).__name__} space, which is no array of numbers: {space}. Make "
        "numbers of them with a gymnasium.ObservationWrapper"
    )
