"""Encode an environment's observations as the rows that a module computes on, and take action masks out of them."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.observations.rows import as_array, flat_rows, is_finite, leading_shape, nonfinite, nonfinite_part
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.spaces.kinds import dict_of, is_box, is_structured, named_parts
from plugrad.spaces.layout import flat_space, row_parts, stored_space, without_keys
from plugrad.types import Array

SHOWN_VALUES = 4
"""Of the numbers that are not finite, so many are in the error."""


class ObservationEncoder:
    """Flattens, scales and casts observations.

    Args:
        space: the observation space of the environment.
        row_space: the space of one row that the module reads; None: `stored_space` of the flattened `space`.
        normalizer: scales the rows; None: they are not scaled.
        unread: keys of a Dict that the module does not read to act. Their numbers are 0 in rows of `encode`, and
            observations need not have them.

    Attributes:
        flattens: whether rows are flattened observations.
        read_space: `space` without the keys `unread`.

    Raises:
        ConfigError: observations of `space` cannot be flattened, or have no such key.
    """

    def __init__(
        self,
        space: Space[Any],
        row_space: Space[Any] | None = None,
        normalizer: ObservationNormalizer | None = None,
        unread: Collection[str] = (),
    ) -> None:
        self.space, self.unread = space, tuple(unread)
        self.read_space: Space[Any] = without_keys(space, unread) if unread else space
        self.row_space: Space[Any] = stored_space(flat_space(space)) if row_space is None else row_space
        self.normalizer = normalizer
        self.flattens = is_box(self.row_space) and not is_box(space)
        self._shape_of_one = space.shape if is_box(space) else None
        if unread:
            read = [part for part in row_parts(space) if not part.is_of(unread)]
            self._places = np.concatenate([np.arange(part.start, part.stop) for part in read])
            self._zeros = np.zeros(row_parts(space)[-1].stop, flat_space(space).dtype)
        if is_box(self.row_space) and self.row_space.shape != _flat_shape(space):
            raise ConfigError(
                f"flattened observations of {space} have the shape {list(_flat_shape(space))}, and the module reads "
                f"rows of {self.row_space}"
            )

    def rows(self, flat: Array) -> Array:
        """Scale and cast observations [N, ...] that are flat or of a Box; returns a new array [N, ...]."""
        if self.normalizer is not None:
            return self.normalizer.normalize(flat)
        return np.array(flat, dtype=self.row_space.dtype)

    def gives_finite_rows(self, flat: Array) -> bool:
        """Whether rows of these observations have no NaN and no infinity; scaled ones may be of any finite number."""
        return is_finite(flat, in_float32=self.normalizer is None)

    def encode(self, observation: Any, *, must_be_finite: bool = False) -> tuple[Array, bool]:
        """Encode one observation, or a batch.

        Args:
            observation: one, or a batch in which every array of the structure has a leading dimension N.
            must_be_finite: whether NaN and infinity are refused.

        Returns:
            `(rows, is_single)`: rows [N, ...], N = 1 for one observation, and whether it was one.

        Raises:
            BatchError: it does not fit the space, or is not finite and must be.
        """
        if self._shape_of_one is not None and getattr(observation, "shape", None) == self._shape_of_one:
            one = as_array(self.space, observation)
            if must_be_finite:
                self._check_finite(one)
            return self.rows(one[None]), True
        flat, number_of_dimensions = self._flat(observation)
        if number_of_dimensions > 1:
            found = f"{number_of_dimensions} leading dimensions"
            expected = f"one observation, or a batch [N, ...], of {self.space}"
            raise BatchError(
                f"observation: expected {expected}; found {found}",
                column=Columns.OBS,
                expected=expected,
                found=found,
            )
        if must_be_finite:
            self._check_finite(flat)
        return self.rows(flat if number_of_dimensions else flat[None]), not number_of_dimensions

    def _flat(self, observation: Any) -> tuple[Array, int]:
        """What `rows` takes, and its number of leading dimensions."""
        if self.flattens:
            flat = flat_rows(self.space, observation) if not self.unread else self._flat_of_read(observation)
            return flat, flat.ndim - 1
        array = as_array(self.space, observation)
        return array, len(leading_shape(self.space, array))

    def _flat_of_read(self, observation: Any) -> Array:
        """Flat observations of the keys that are read; the numbers of others are 0, whether they are there or not."""
        if isinstance(observation, Mapping):
            observation = {key: each for key, each in observation.items() if key not in self.unread}
        read = flat_rows(self.read_space, observation)
        flat = np.broadcast_to(self._zeros, (*read.shape[:-1], self._zeros.size)).copy()
        flat[..., self._places] = read
        return flat

    def _check_finite(self, observation: Array) -> None:
        """Refuse NaN and infinity, which no environment may return in training either: actions would be NaN, too."""
        if not is_finite(observation, in_float32=self.normalizer is None):  # in each step: one call less
            where, what = nonfinite(observation)
            path = ""
            if self.flattens and is_structured(self.space):  # name the first sensor that is
                path = nonfinite_part(self.space, np.any(where.reshape(-1, where.shape[-1]), axis=0))
                part = next(each for each in row_parts(self.space) if each.path == path)
                observation, where = (each[..., part.start : part.stop] for each in (observation, where))
            bad, expected = observation[where][:SHOWN_VALUES], "finite numbers"
            raise BatchError(
                f"observation{path}: expected {expected}; found {what}: {bad.tolist()} in {observation.dtype}"
                f"{list(observation.shape)}",
                column=Columns.OBS,
                expected=expected,
                found=bad,
            )


def _flat_shape(space: Space[Any]) -> tuple[int, ...]:
    return tuple(space.shape or ()) if is_box(space) else (row_parts(space)[-1].stop,)


# --- action masks that come with observations ---


def without_action_mask(space: Space[Any]) -> Space[Any]:
    """The Dict of observations without the key `action_mask`. If one key is left, it is that key's space."""
    rest = {key: each for key, each in named_parts(space).items() if key != Columns.ACTION_MASK}
    return next(iter(rest.values())) if len(rest) == 1 else dict_of(rest)


def split_action_mask(space: Space[Any], observation: Any) -> tuple[Any, Any]:
    """Take the key `action_mask` out of an observation, or out of a batch.

    Args:
        space: of observations without the key, as `without_action_mask` gives it.
        observation: with or without the key.

    Returns:
        `(observation, mask)`: the observation is of `space`; the mask is None without the key.
    """
    if not isinstance(observation, Mapping) or Columns.ACTION_MASK not in observation:
        return observation, None
    if Columns.ACTION_MASK in named_parts(space):
        return observation, None
    rest = {key: value for key, value in observation.items() if key != Columns.ACTION_MASK}
    is_one = len(rest) == 1 and set(named_parts(space)) != set(rest)
    return (next(iter(rest.values())) if is_one else rest), observation[Columns.ACTION_MASK]
