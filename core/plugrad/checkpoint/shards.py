"""Shards: arrays as safetensors files, in which an array's name is its number.

A state is written in several files, so that saving and loading need little memory beside the arrays.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import safetensors.numpy

from plugrad.checkpoint import named_arrays
from plugrad.checkpoint.named_arrays import MAX_HEADER_BYTES, as_stored, header_length
from plugrad.errors import CheckpointError
from plugrad.types import Array

MAX_ARRAYS: Final = 100_000
"""Arrays in one checkpoint."""
SHARD_ARRAYS: Final = 10_000
SHARD_BYTES: Final = 64 * 2**20
"""A shard is closed when it has this many bytes or more; one array is never split."""


def pack(arrays: Sequence[Array]) -> Iterator[bytes]:
    """The shards of some arrays, one after the other; none for no arrays.

    Raises:
        CheckpointError: more arrays or longer shapes than `unpack` would read.
    """
    if len(arrays) > MAX_ARRAYS:
        raise CheckpointError(f"a state of {len(arrays)} arrays: a checkpoint holds at most {MAX_ARRAYS}")
    shard: dict[str, Array] = {}
    size = 0
    for number, array in enumerate(arrays):
        shard[str(number)] = as_stored(array)
        size += array.nbytes
        if len(shard) == SHARD_ARRAYS or size >= SHARD_BYTES:
            yield _serialize(shard)
            shard, size = {}, 0
    if shard:
        yield _serialize(shard)


def pack_block(arrays: Sequence[Array]) -> bytes:
    """Some arrays as one file; errors as in `pack`."""
    return _serialize({str(number): as_stored(array) for number, array in enumerate(arrays)})


def _serialize(shard: dict[str, Array]) -> bytes:
    data = safetensors.numpy.save(shard)
    if header_length(data) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the shapes of {len(shard)} arrays take more than {MAX_HEADER_BYTES} bytes to write"
        )
    return data


def unpack(data: bytearray) -> dict[int, Array]:
    """The arrays of one shard by number: writable, C-ordered views of `data` that do not overlap.

    Raises:
        CheckpointUnsafeError: the header is longer than any that `pack` writes.
        ValueError: the bytes are not a shard.
    """
    return {_number(name): array for name, array in named_arrays.unpack(data).arrays.items()}


def _number(name: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,5}", name):
        raise ValueError(f"an array named {name[:40]!r}: a number is expected")
    return int(name)
