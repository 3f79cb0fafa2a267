"""The memory that this process may use, by the machine and by the control groups that it is in."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def usable_memory(root: Path = Path("/")) -> int | None:
    """The bytes of memory that this process may use: the machine's, or a lower limit of a control group.

    Containers and job schedulers set such limits. Both versions are read, and the limits of groups further out:
    `memory.max` of version 2, `memory.limit_in_bytes` of version 1 (man 7 cgroups).

    Args:
        root: where `proc` and `sys` are.

    Returns:
        The bytes; None if the system says nothing.
    """
    found = [*_machine_memory(root), *_group_limits(root)]
    return min(found) if found else None


def _machine_memory(root: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                yield int(line.split()[1]) * 1024
                return
    with suppress(OSError, ValueError, AttributeError):  # no Linux
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_limits(root: Path) -> Iterator[int]:
    """Of each line `id:controllers:path` in /proc/self/cgroup, the limits on the way to the root."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            folder, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        inner = Path(group.lstrip("/"))
        if ".." in inner.parts:
            inner = Path()
        for each in (inner, *inner.parents):  # within a container the path may not be there, but its root is
            with suppress(OSError, ValueError):  # "max": no limit
                yield int((folder / each / name).read_text())
