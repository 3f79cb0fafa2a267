"""Output of the benchmarks: Markdown tables for RESULTS.md, and the machine and versions."""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime

from record import installed, processor


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Make a Markdown table with aligned columns."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def machine() -> str:
    """Return date, processor and versions in one line."""
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    versions = ", ".join(f"{name} {each}" for name, each in installed().items())
    return f"{date}; {processor()}; Python {platform.python_version()}, {versions}"
