"""Arrays as the bytes of safetensors files, each named by its number, and back.

A shard is one file of a save. Shards bound the memory that a save and a load need beside the arrays. This
room knows nothing of names, states and disks.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from plugrad.errors import CheckpointError, CheckpointUnsafeError
from plugrad.types import Array

MAX_ARRAYS: Final = 100_000
"""Arrays in one checkpoint."""
MAX_HEADER_BYTES: Final = 4 * 2**20
SHARD_ARRAYS: Final = 10_000
SHARD_BYTES: Final = 64 * 2**20
"""A shard is closed when it has this many bytes or more; one array is never split."""


def pack(arrays: Sequence[Array]) -> Iterator[bytes]:
    """The shards that hold the arrays, one after the other; none where there are no arrays.

    Raises:
        CheckpointError: more arrays or longer shapes than `unpack` would read.
    """
    if len(arrays) > MAX_ARRAYS:
        raise CheckpointError(f"a state of {len(arrays)} arrays: a checkpoint holds at most {MAX_ARRAYS}")
    shard: dict[str, Array] = {}
    size = 0
    for number, array in enumerate(arrays):
        shard[str(number)] = _as_stored(array)
        size += array.nbytes
        if len(shard) == SHARD_ARRAYS or size >= SHARD_BYTES:
            yield _serialize(shard)
            shard, size = {}, 0
    if shard:
        yield _serialize(shard)


def _as_stored(array: Array) -> Array:
    # safetensors writes the buffer as it lies: a transposed array would come back scrambled, without an
    # error.
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _serialize(shard: dict[str, Array]) -> bytes:
    data = safetensors.numpy.save(shard)
    if _header_length(data) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the shapes of {len(shard)} arrays take more than {MAX_HEADER_BYTES} bytes to write"
        )
    return data


def _header_length(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def unpack(data: bytes) -> dict[int, Array]:
    """The arrays of one shard by number: writable, C-ordered, each with memory of its own.

    safetensors checks that every shape times its item size is the length of its bytes and that the bytes are
    all used.

    Raises:
        CheckpointUnsafeError: the header is longer than any that `pack` writes.
        ValueError: the bytes are not a shard.
    """
    if _header_length(data) > MAX_HEADER_BYTES:
        raise CheckpointUnsafeError(
            f"a header of {_header_length(data)} bytes, at most {MAX_HEADER_BYTES} are read"
        )
    try:
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that numpy does not have
        raise ValueError(f"not a safetensors file of numpy dtypes: {error}") from error
    return {_number(name): array for name, array in arrays.items()}


def _number(name: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,5}", name):
        raise ValueError(f"an array named {name[:40]!r}: a number is expected")
    return int(name)
