"""Dict, Tuple and discrete observations as one flat row."""

from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Space, flatten_space

from plugrad.observations.rows import cast_exactly
from plugrad.sampling.env_checker import WrongObservationError
from plugrad.spaces.kinds import array_of, first_choice, is_one_hot, number_of_choices
from plugrad.spaces.layout import RowPart, in_arrays, leaves, row_parts, structure_leaves
from plugrad.types import Array


class FlatObservations(gym.Wrapper[Any, Any, Any, Any]):
    """Makes of each observation the row of `gymnasium.spaces.flatten`, and checks its parts.

    Args:
        env: of any observation space that `row_parts` takes.

    Raises:
        ConfigError: a part of the space is no array of numbers.
        EnvContractError: by `reset` and `step`, if a part of an observation has another shape than the space says, a
            discrete part is none of its choices, or the dtype of a Box cannot hold its numbers.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._rows = RowWriter(env.observation_space)
        self.observation_space: Space[Any] = self._rows.row_space

    def reset(self, **settings: Any) -> Any:
        """Reset the environment."""
        return self._flattened(self.env.reset(**settings), 2)

    def step(self, action: Any) -> Any:
        """Step the environment."""
        return self._flattened(self.env.step(action), 5)

    def _flattened(self, answer: Any, length: int) -> Any:
        """The answer with a row in it; one of another form as it is, to be refused."""
        if not isinstance(answer, tuple | list) or len(answer) != length:
            return answer
        return (self._rows.row(answer[0]), *answer[1:])


class RowWriter:
    """Makes rows of observations, one at a time; `plugrad.observations.flat_rows` makes those of many.

    Args:
        space: of one observation.

    Attributes:
        row_space: of one row.

    Raises:
        ConfigError: a part of the space is no array of numbers.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._space = space
        self._parts = [
            _PartWriter(part, leaf) for part, (_, leaf) in zip(row_parts(space), leaves(space), strict=True)
        ]
        self.row_space: Space[Any] = flatten_space(in_arrays(space))
        self._shape, self._dtype = self.row_space.shape or (), self.row_space.dtype

    def row(self, observation: Any) -> Array:
        """The row of one observation.

        Args:
            observation: in the structure of the space.

        Returns:
            `[numbers]`, as of `gymnasium.spaces.flatten`.

        Raises:
            WrongObservationError: it is not of the space.
        """
        try:
            values = structure_leaves(self._space, observation)
        except (KeyError, IndexError, TypeError, ValueError) as error:  # keys or parts are missing
            raise WrongObservationError.of("", observation, self._space) from error
        row = np.zeros(self._shape, self._dtype)
        for part, value in zip(self._parts, values, strict=True):
            part.write(row, value)
        return row


def env_observation_space(env: gym.Env[Any, Any]) -> Space[Any]:
    """The space of an environment of `make_env` before its observations are flattened."""
    return env.env.observation_space if isinstance(env, FlatObservations) else env.observation_space


class _PartWriter:
    """Writes one part of an observation to its place in a row."""

    def __init__(self, part: RowPart, own: Space[Any]) -> None:
        self._part, self._shape, self._dtype = part, part.space.shape, part.space.dtype
        self._own = own
        self._is_registered = own is not part.space
        self._place = slice(part.start, part.stop)
        self._sizes: Any = number_of_choices(part.space)  # None: of a Box
        self._first: Any = first_choice(part.space)
        self._is_choice = self._sizes is not None and self._shape == ()
        if self._is_choice:
            self._first = int(self._first)
        self._end: Any = None if self._sizes is None else self._first + self._sizes
        self._ones: Array | None = None
        if is_one_hot(part.space):
            sizes = np.ravel(self._sizes)
            self._ones = part.start + np.cumsum(sizes) - sizes  # of the first choices

    def write(self, row: Array, value: Any) -> None:
        """Write a value.

        Raises:
            WrongObservationError: it is not of the part's space.
        """
        if self._is_registered:
            try:
                value = array_of(self._own, value)
            except (ValueError, TypeError, LookupError):
                self._refuse(value)
        if self._is_choice and isinstance(value, int | np.integer):  # as below, in less time
            if not self._first <= value < self._end:
                self._refuse(value)
            row[self._part.start + int(value) - self._first] = 1
            return
        try:
            found = np.asarray(value)
        except ValueError:  # lists of different lengths
            self._refuse(value)
        if found.shape != self._shape or found.dtype.kind not in "biuf":
            self._refuse(value)
        if self._sizes is not None and not self._are_choices(found):
            self._refuse(value)
        if self._ones is not None:
            found = found - self._first
            row[self._ones + found.ravel().astype(np.int64, copy=False)] = 1
            return
        numbers = cast_exactly(found, self._dtype)
        if numbers is None:
            self._refuse(value, has_wrong_dtype=True)
        row[self._place] = numbers.ravel()

    def _are_choices(self, found: Any) -> bool:
        good = (found >= self._first) & (found < self._end)
        if found.dtype.kind == "f":
            good &= np.rint(found) == found
        return bool(np.count_nonzero(good) == found.size)

    def _refuse(self, value: Any, *, has_wrong_dtype: bool = False) -> NoReturn:
        raise WrongObservationError.of(self._part.path, value, self._own, has_wrong_dtype=has_wrong_dtype)
