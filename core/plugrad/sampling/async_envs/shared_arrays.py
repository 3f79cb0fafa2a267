"""The arrays that a driver and its worker processes share.

They lie in an unnamed file, which is removed when the last process closes it.
"""

import mmap
import os
import tempfile
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from plugrad.action_rows import is_structured
from plugrad.errors import ConfigError
from plugrad.sampling.vector_envs import EnvSpaces
from plugrad.types import Array

LINE = 64
"""Arrays begin at multiples of a cache line."""
IDLE = -1


class SharedArrays(NamedTuple):
    """The last actions and answers of all environments.

    Args:
        observations: `[N, ...]`.
        rewards: float64 `[N]`.
        terminated: bool `[N]`.
        truncated: bool `[N]`.
        actions: `[N, ...]`; `[N, 0]` where an action has parts.
        busy: int64 `[num_workers]`, the environment that each worker is in, or `IDLE`.
    """

    observations: Array
    rewards: Array
    terminated: Array
    truncated: Array
    actions: Array
    busy: Array


def create_memory() -> int:
    """Create a file without a name; returns its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("plugrad-environments")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def reserve(descriptor: int, spaces: EnvSpaces, num_envs: int, num_workers: int) -> None:
    """Make the file large enough for the arrays.

    Args:
        descriptor: of `create_memory`.
        spaces: of one environment.
        num_envs: `N`.
        num_workers: how many processes write.

    Raises:
        ConfigError: there is not enough memory.
    """
    size = sum(_padded(dtype, shape) for dtype, shape in _layout(spaces, num_envs, num_workers))
    try:
        if hasattr(os, "posix_fallocate"):  # full memory is an error here, and a crash when it is written to
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        raise ConfigError(
            f"no memory for the observations of {num_envs} environments, {size} bytes: {error.strerror}"
        ) from error


def map_arrays(descriptor: int, spaces: EnvSpaces, num_envs: int, num_workers: int) -> SharedArrays:
    """Map the arrays of a file.

    Args:
        descriptor: of the file, after `reserve`.
        spaces: as in `reserve`.
        num_envs: as in `reserve`.
        num_workers: as in `reserve`.

    Returns:
        The arrays, which all processes share.
    """
    memory, start, arrays = mmap.mmap(descriptor, 0), 0, []
    for dtype, shape in _layout(spaces, num_envs, num_workers):
        count = int(np.prod(shape))
        arrays.append(np.frombuffer(memory, dtype, count, start).reshape(shape))
        start += _padded(dtype, shape)
    return SharedArrays(*arrays)


def _layout(
    spaces: EnvSpaces, num_envs: int, num_workers: int
) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    numbers = [(np.dtype(each), (num_envs,)) for each in (np.float64, np.bool_, np.bool_)]
    observations, actions = (_batch(space, num_envs) for space in (spaces.rows, spaces.actions))
    return [observations, *numbers, actions, (np.dtype(np.int64), (num_workers,))]


def _batch(space: Space[Any], num_envs: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    shape = (0,) if is_structured(space) else space.shape or ()
    return np.dtype(space.dtype), (num_envs, *shape)


def _padded(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    return LINE * -(-int(np.prod(shape)) * dtype.itemsize // LINE)
