"""The memory that replay buffers take when they are full, said before anything is allocated."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.replay.machine_memory import usable_memory
from plugrad.replay.observation_rows import StoredPart
from plugrad.replay.storage import RowStorage
from plugrad.replay.sum_tree import SumTree
from plugrad.types import Array, ModuleID

LARGEST_SHARE: Final = 0.8
"""Of the memory that the process may use; buffers that take more than this when they are full are warned of."""
_ADVISED_SHARE: Final = 0.5
_log = logging.getLogger("plugrad")


class BufferSize(NamedTuple):
    """The size of a full buffer.

    Args:
        capacity: rows.
        bytes: of all of them.
    """

    capacity: int
    bytes: int


def buffer_size(
    settings: Mapping[str, Any],
    row: Mapping[str, Array],
    parts: Sequence[StoredPart] = (),
    kind: type[RowStorage] = RowStorage,
) -> BufferSize:
    """The size of a full buffer.

    Args:
        settings: of `merged_replay_settings`.
        row: `{column: [1, ...]}`.
        parts: of the row of an observation, of `stored_parts`.
        kind: what stores the rows.

    Returns:
        The size.
    """
    capacity = settings["capacity"]
    tree = SumTree.bytes_of(capacity) if settings["type"] == "prioritized" else 0
    return BufferSize(capacity, kind.full_bytes(capacity, row, parts) + tree)


def warn_of_size(sizes: Mapping[ModuleID, BufferSize], free_there: int | None = None) -> None:
    """Log how large buffers become, and warn if they take more than `LARGEST_SHARE` of the memory together.

    Args:
        sizes: `{module_id: size}`.
        free_there: bytes that are free on the device whose memory they take; None: they take the host's.
    """
    for module_id, (capacity, number) in sizes.items():
        _log.info(
            "the replay buffer of module %r takes %s when its %d rows are full",
            module_id,
            _shown(number),
            capacity,
        )
    total = sum(size.bytes for size in sizes.values())
    memory = usable_memory() if free_there is None else free_there
    if memory is None or total <= LARGEST_SHARE * memory:
        return
    capacity = max(size.capacity for size in sizes.values())
    fits = max(1, int(capacity * _ADVISED_SHARE * memory / total))
    fits -= fits % 10 ** max(0, len(str(fits)) - 2)  # two digits are enough
    modules = f" of {len(sizes)} modules together" if len(sizes) > 1 else ""
    where, when = "this process may use", "as they fill"
    if free_there is not None:
        where, when = "the learner's device has free", "when the first rows come"
    warn_at_users_line(
        f"full replay buffers{modules} take {total} bytes ({_shown(total)}), for capacity={capacity} rows, and {where} "
        f"{memory} bytes ({_shown(memory)}). The memory is taken {when}. Give a smaller "
        f'capacity: .training(replay_buffer_config={{"capacity": {fits}}})'
    )


def _shown(number: int) -> str:
    """Bytes in the unit that people read."""
    size, unit = float(number), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.1f} {unit}"
