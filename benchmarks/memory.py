"""Resident memory of this process, in bytes, as Linux counts it."""

from pathlib import Path


def resident() -> int:
    """Return the resident memory now."""
    return _status("VmRSS")


def peak() -> int:
    """Return the highest resident memory since the start, or since `reset_peak()`."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Reset the peak to the current value (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)
