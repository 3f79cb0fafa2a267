"""`metrics.jsonl` and `metrics.csv`: one row of numbers per iteration, the same in both.

Runs are read from the JSON lines alone. The table is written anew when a column is added or rows are cut.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plugrad.checkpoint.disk import disk_errors, open_in_place, replace_file
from plugrad.cli.progress import ITERATION, TIMESTEPS
from plugrad.cli.run_files import read_lines
from plugrad.errors import ConfigError

Row = dict[str, float]
MAX_LINE_BYTES = 2**20
_COUNTS = (ITERATION, TIMESTEPS)
"""The columns that every row has."""


class MetricsFiles:
    """The two files of a run directory.

    Args:
        directory: the run directory; rows that its files have already are kept.

    Attributes:
        jsonl: the path of the JSON lines.
        csv: the path of the table.
        rows: all rows, those included that the disk refused.
    """

    def __init__(self, directory: Path) -> None:
        self.jsonl = directory / "metrics.jsonl"
        self.csv = directory / "metrics.csv"
        self.rows = read_rows(self.jsonl)
        self._columns = _columns(self.rows)

    def append(self, row: Mapping[str, float]) -> None:
        """Add one iteration to both files.

        Raises:
            CheckpointError: the disk refused; names the file. The row is in `rows`, so `write_all` writes it later.
        """
        self.rows.append(dict(row))
        _append(self.jsonl, _line(row))
        if set(row) <= set(self._columns):
            line = io.StringIO(newline="")
            csv.DictWriter(line, self._columns, restval="").writerow(row)
            _append(self.csv, line.getvalue())
        else:
            self._write_table()

    def truncate(self, last_iteration: int) -> None:
        """Drop the rows after an iteration: when a run resumes, these iterations are trained again."""
        self.rows = [row for row in self.rows if row[ITERATION] <= last_iteration]
        self.write_all()

    def write_all(self) -> None:
        """Write both files anew.

        Raises:
            CheckpointError: the disk refused; names the file, which is as it was.
        """
        _replace(self.jsonl, [_line(row) for row in self.rows])
        self._write_table()

    def _write_table(self) -> None:
        self._columns = _columns(self.rows)
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, self._columns, restval="")
        writer.writeheader()
        writer.writerows(self.rows)
        _replace(self.csv, [table.getvalue()])


def read_rows(path: Path) -> list[Row]:
    """The rows of a `metrics.jsonl`; none if there is no such file. An incomplete last line is left out.

    Raises:
        ConfigError: the file is no regular file, or a line is no row of numbers; names the file and the line.
    """
    if not os.path.lexists(path):
        return []
    lines = read_lines(path, MAX_LINE_BYTES)
    return [row for number, line in enumerate(lines, 1) if (row := _row(path, number, line)) is not None]


def _row(path: Path, number: int, line: bytes) -> Row | None:
    """The row of a line; None for an incomplete one."""
    try:
        found = json.loads(line)
        return _numbers(found)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and not line.endswith(b"\n"):
            return None
        raise ConfigError(
            f"{path}, line {number}: a JSON object of numbers is expected, with {', '.join(_COUNTS)}: {error}"
        ) from error


def _numbers(found: Any) -> Row:
    if not isinstance(found, dict):
        raise ValueError(f"found {type(found).__name__}")
    for name in _COUNTS:
        if name not in found:
            raise ValueError(f"{name} is missing")
    row = {name: _number(name, value) for name, value in found.items()}
    for name in _COUNTS:
        if not math.isfinite(row[name]):
            raise ValueError(f"{name} is {row[name]}")
    return row


def _number(name: str, value: Any) -> float:
    number = float(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{name[:100]!r} is {str(value)[:40]!r}")
    return number


def _line(row: Mapping[str, float]) -> str:
    # Strict JSON has no infinity and no nan.
    plain: dict[str, Any] = {k: v if math.isfinite(v) else str(v) for k, v in row.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def _columns(rows: Iterable[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _append(path: Path, text: str) -> None:
    with disk_errors("write", path), os.fdopen(open_in_place(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def _replace(path: Path, lines: Iterable[str]) -> None:
    with disk_errors("write", path):
        replace_file(path, "".join(lines).encode("utf-8", "backslashreplace"))
