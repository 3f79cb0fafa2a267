"""Encode an environment's observations as the rows that a module computes on."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete, Space

from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.types import Array


class ObservationEncoder:
    """Flattens, scales and casts observations.

    Args:
        space: the observation space of the environment.
        row_space: the space of one row that the module reads; None: `stored_space` of the flattened `space`.
        normalizer: scales the rows; None: they are not scaled.

    Attributes:
        flattens: whether rows are flattened observations.

    Raises:
        ConfigError: observations of `space` cannot be flattened.
    """

    def __init__(
        self,
        space: Space[Any],
        row_space: Space[Any] | None = None,
        normalizer: ObservationNormalizer | None = None,
    ) -> None:
        self.space = space
        self.row_space: Space[Any] = stored_space(flat_space(space)) if row_space is None else row_space
        self.normalizer = normalizer
        self.flattens = isinstance(self.row_space, Box) and not isinstance(space, Box)
        if self.flattens and self.row_space.shape != (_flat_length(space),):
            raise ConfigError(
                f"flattened observations of {space} have {_flat_length(space)} numbers, and the module reads rows of "
                f"{self.row_space}"
            )

    def rows(self, flat: Array) -> Array:
        """Scale and cast observations [N, ...] that are flat or of a Box; returns a new array [N, ...]."""
        if self.normalizer is not None:
            return self.normalizer.normalize(flat)
        return np.array(flat, dtype=self.row_space.dtype)

    def encode(self, observation: Any) -> tuple[Array, bool]:
        """Encode one observation, or a batch.

        Args:
            observation: one, or a batch in which every array of the structure has a leading dimension N.

        Returns:
            `(rows, is_single)`: rows [N, ...], N = 1 for one observation, and whether it was one.

        Raises:
            BatchError: it does not fit the space.
        """
        number = _num_rows(self.space, observation, "")
        if not self.flattens:
            array = np.asarray(observation)
            return self.rows(array[None] if number is None else array), number is None
        singles = (
            [observation] if number is None else [_row(self.space, observation, n) for n in range(number)]
        )
        flat = [np.asarray(spaces.flatten(self.space, each)) for each in singles]
        width = (0, *self.row_space.shape) if self.row_space.shape is not None else (0,)
        return self.rows(np.stack(flat) if flat else np.empty(width)), number is None


def flat_space(space: Space[Any]) -> Space[Any]:
    """The space of flattened observations; that of a Box is the Box.

    Raises:
        ConfigError: observations of this space have no fixed length.
    """
    if isinstance(space, Box):
        return space
    _flat_length(space)
    return spaces.flatten_space(space)


def _flat_length(space: Space[Any]) -> int:
    if not space.is_np_flattenable:
        raise ConfigError(f"observations of {space} cannot be flattened; wrap the environment")
    return int(spaces.flatdim(space))


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


def _num_rows(space: Space[Any], observation: Any, path: str) -> int | None:
    """The number of rows of a batch; None for one observation."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return _num_rows_of_array(space, observation, path)
    parts = _parts(space, observation, path)
    found = {where: _num_rows(part, value, where) for where, part, value in parts}
    if len(set(found.values())) > 1:
        counts = ", ".join(f"{'one' if n is None else n} at {where}" for where, n in found.items())
        _raise(path, "equally many rows everywhere", counts)
    return next(iter(found.values()), None)


def _parts(space: Any, observation: Any, path: str) -> list[tuple[str, Space[Any], Any]]:
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or set(observation) != set(space.spaces):
            found = list(observation) if isinstance(observation, Mapping) else type(observation).__name__
            _raise(path, f"a dict of {list(space.spaces)}", found)
        return [(f"{path}[{key!r}]", each, observation[key]) for key, each in space.spaces.items()]
    if not isinstance(observation, tuple | list) or len(observation) != len(space.spaces):
        found = f"{type(observation).__name__} of {np.size(observation)}"
        _raise(path, f"a tuple of {len(space.spaces)}", found)
    return [(f"{path}[{n}]", each, observation[n]) for n, each in enumerate(space.spaces)]


def _num_rows_of_array(space: Space[Any], observation: Any, path: str) -> int | None:
    shape = space.shape or ()
    expected = f"an array {list(shape)}, or a batch [N{''.join(f', {n}' for n in shape)}], of {space}"
    try:
        array = np.asarray(observation)
    except ValueError:  # nested lists of different lengths
        _raise(path, expected, type(observation).__name__)
    if array.dtype.kind not in ("US" if isinstance(space, spaces.Text) else "biuf"):
        _raise(path, expected, type(observation).__name__)
    if array.shape not in (shape, (*array.shape[:1], *shape)):
        _raise(path, expected, f"shape {list(array.shape)}")
    if isinstance(space, Discrete) and np.any((array < space.start) | (array >= space.start + space.n)):
        _raise(path, f"whole numbers of {space}", array)
    return None if array.shape == shape else len(array)


def _row(space: Space[Any], observation: Any, n: int) -> Any:
    """Row `n` of a batch, in the structure of the space."""
    if isinstance(space, spaces.Dict):
        return {key: _row(each, observation[key], n) for key, each in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_row(each, part, n) for each, part in zip(space.spaces, observation, strict=True))
    return observation[n]


def _raise(path: str, expected: str, found: Any) -> NoReturn:
    raise BatchError(
        f"observation{path}: expected {expected}; found {found}",
        column=Columns.OBS,
        expected=expected,
        found=found,
    )
