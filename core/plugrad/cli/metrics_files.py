"""`metrics.jsonl` and `metrics.csv`: one row of numbers per iteration.

The JSON lines are the truth: they are only appended to, and runs are read from them alone. The table has the same rows.
A row may bring a new column, and a table cannot take one without being written anew. So a new column enters the table
at once while this is short, and later when the table has doubled its length, when the run ends, or when it goes on.

Rows are never kept in memory: a run may take months.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from plugrad.checkpoint.disk import disk_errors, open_in_place, replace_file
from plugrad.cli.progress import ITERATION, TIMESTEPS, History
from plugrad.cli.run_files import read_end, read_lines
from plugrad.errors import ConfigError

Row = dict[str, float]
MAX_LINE_BYTES = 2**20
SHORT_TABLE = 1000
"""Rows up to which a new column enters the table at once."""
_COUNTS = (ITERATION, TIMESTEPS)
"""The columns that every row has."""
_BLOCK = 1000


class MetricsFiles:
    """The two files of a run directory. What they have already is read when it is first needed, and kept.

    Args:
        directory: the run directory.

    Attributes:
        jsonl: the path of the JSON lines.
        csv: the path of the table.
    """

    def __init__(self, directory: Path) -> None:
        self.jsonl = directory / "metrics.jsonl"
        self.csv = directory / "metrics.csv"
        self._history: History | None = None
        self._columns: dict[str, None] = {}
        self._in_table: list[str] = []
        self._num_rows = 0
        self._next_table = SHORT_TABLE
        self._table_is_behind = False
        self._sizes: dict[Path, int] = {}
        self._waiting: dict[Path, list[str]] = {self.jsonl: [], self.csv: []}

    @property
    def history(self) -> History:
        """What is kept of all rows, those included that the disk refused.

        Raises:
            ConfigError: see `iterate_rows`.
        """
        if self._history is None:
            self._read(math.inf)
        assert self._history is not None
        return self._history

    def append(self, row: Mapping[str, float]) -> None:
        """Add one iteration to both files.

        Raises:
            CheckpointError: the disk refused; names the file. A later `flush` writes the row.
        """
        self.add(row)
        self.flush()

    def add(self, row: Mapping[str, float]) -> None:
        """Add one iteration; the next `flush` writes it."""
        self.history.add(row)
        self._num_rows += 1
        self._waiting[self.jsonl].append(_json_line(row))
        if not row.keys() <= self._columns.keys():
            self._columns |= dict.fromkeys(row)
        if self._num_rows <= SHORT_TABLE or self._num_rows >= self._next_table:
            self._table_is_behind |= len(self._in_table) < len(self._columns)
        if self._num_rows >= self._next_table:
            self._next_table *= 2
        self._waiting[self.csv].append(_table_line(self._in_table, row))

    def flush(self) -> None:
        """Write the rows that wait.

        Raises:
            CheckpointError: the disk refused; names the file. The rows wait on.
        """
        self._append_waiting(self.jsonl)
        if self._table_is_behind:
            self._write_table()
        else:
            self._append_waiting(self.csv)

    def complete(self) -> None:
        """Write the rows that wait, and the columns that the table does not have yet.

        Raises:
            CheckpointError: the disk refused; names the file.
        """
        self._table_is_behind = len(self._in_table) < len(self._columns)
        self.flush()

    def truncate(self, last_iteration: float) -> None:
        """Drop the rows after an iteration: when a run resumes, these iterations are trained again.

        Raises:
            CheckpointError: the disk refused; names the file.
            ConfigError: see `iterate_rows`.
        """
        # A million rows take most of a minute to read. The table is written meanwhile, with the columns that the first
        # rows have; it is written again if others came later.
        first = islice(iterate_rows(self.jsonl), SHORT_TABLE)
        columns = list(dict.fromkeys(name for row in first for name in row))
        with disk_errors("write", self.csv):
            replace_file(self.csv, _blocks(_table_lines(columns, self._rows(last_iteration))))
        if os.path.lexists(self.jsonl):
            self._append_waiting(self.jsonl)
        if columns == list(self._columns):
            self._table_is_written(columns)
        else:
            self._write_table()

    def _read(self, last_iteration: float) -> None:
        """Read the rows up to an iteration."""
        for _ in self._rows(last_iteration):
            pass

    def _rows(self, last_iteration: float) -> Iterator[Row]:
        """The rows up to an iteration; once all are read, what comes after them is overwritten."""
        self._history, self._columns, self._num_rows, size = History(), {}, 0, 0
        is_whole = True
        for line, row in _lines_and_rows(self.jsonl):
            if row[ITERATION] > last_iteration:
                break
            self._history.add(row)
            self._num_rows += 1
            size, is_whole = size + len(line), line.endswith(b"\n")
            if not row.keys() <= self._columns.keys():
                self._columns |= dict.fromkeys(row)
            yield row
        self._sizes = {self.jsonl: size}
        self._waiting = {self.jsonl: [] if is_whole else ["\n"], self.csv: []}
        while self._next_table <= self._num_rows:
            self._next_table *= 2
        self._table_is_behind = self._num_rows > 0  # until it is known to have these columns and rows

    def _append_waiting(self, path: Path) -> None:
        """Append the waiting lines in one piece: what a failed write left of them is overwritten by the next."""
        with disk_errors("write", path):
            fd = open_in_place(path, os.O_WRONLY)
            try:
                found = os.fstat(fd).st_size
                size = min(found, self._sizes.get(path, found))
                if found > size:
                    os.ftruncate(fd, size)
                os.lseek(fd, size, os.SEEK_SET)
                rest = memoryview("".join(self._waiting[path]).encode("utf-8", "backslashreplace"))
                self._sizes[path] = size
                while rest:
                    done = os.write(fd, rest)
                    size, rest = size + done, rest[done:]
            finally:
                os.close(fd)
        self._sizes[path] = size
        self._waiting[path] = []

    def _write_table(self) -> None:
        """Write the table anew from the JSON lines, row by row."""
        columns = list(self._columns)
        with disk_errors("write", self.csv):
            replace_file(self.csv, _blocks(_table_lines(columns, iterate_rows(self.jsonl))))
        self._table_is_written(columns)

    def _table_is_written(self, columns: list[str]) -> None:
        self._sizes[self.csv] = self.csv.stat().st_size
        self._waiting[self.csv], self._in_table, self._table_is_behind = [], columns, False


def iterate_rows(path: Path) -> Iterator[Row]:
    """The rows of a `metrics.jsonl`, one after the other; none if there is no such file.

    An incomplete last line is left out.

    Raises:
        ConfigError: the file is no regular file, or a line is no row of numbers; names the file and the line.
    """
    for _, row in _lines_and_rows(path):
        yield row


def read_rows(path: Path) -> list[Row]:
    """All rows of a `metrics.jsonl`; see `iterate_rows`."""
    return list(iterate_rows(path))


def last_row(path: Path) -> Row | None:
    """The last row of a `metrics.jsonl`, read from its end; None if it has none. For the rest see `iterate_rows`."""
    if not os.path.lexists(path):
        return None
    end = read_end(path, 2 * MAX_LINE_BYTES)
    for line in reversed(end.splitlines(keepends=True)):
        if (row := _row(path, None, line)) is not None:
            return row
    return None


def _lines_and_rows(path: Path) -> Iterator[tuple[bytes, Row]]:
    if not os.path.lexists(path):
        return
    for number, line in enumerate(read_lines(path, MAX_LINE_BYTES), 1):
        if (row := _row(path, number, line)) is not None:
            yield line, row


def _row(path: Path, number: int | None, line: bytes) -> Row | None:
    """The row of a line; None for an incomplete one. The number of the last line is None."""
    try:
        found = json.loads(line)
        return _numbers(found)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and not line.endswith(b"\n"):
            return None
        where = "the last line" if number is None else f"line {number}"
        raise ConfigError(
            f"{path}, {where}: a JSON object of numbers is expected, with {', '.join(_COUNTS)}: {error}"
        ) from error


def _numbers(found: Any) -> Row:
    if not isinstance(found, dict):
        raise ValueError(f"found {type(found).__name__}")
    for name in _COUNTS:
        if name not in found:
            raise ValueError(f"{name} is missing")
    row = {name: each if type(each) is float else _number(name, each) for name, each in found.items()}
    for name in _COUNTS:
        if not math.isfinite(row[name]):
            raise ValueError(f"{name} is {row[name]}")
    return row


def _number(name: str, value: Any) -> float:
    number = float(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{name[:100]!r} is {str(value)[:40]!r}")
    if isinstance(number, int) and number.bit_length() > 1000:
        raise ValueError(f"{name[:100]!r} is an integer of {number.bit_length()} bits, which no float holds")
    return number


def _json_line(row: Mapping[str, float]) -> str:
    # Strict JSON has no infinity and no nan.
    plain: dict[str, Any] = {k: v if math.isfinite(v) else str(v) for k, v in row.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def _table_lines(columns: list[str], rows: Iterable[Mapping[str, float]]) -> Iterator[str]:
    header = io.StringIO(newline="")
    csv.writer(header).writerow(columns)
    yield header.getvalue()
    for row in rows:
        yield _table_line(columns, row)


def _table_line(columns: list[str], row: Mapping[str, float]) -> str:
    # Numbers need no quotes; the csv module takes several times as long.
    return ",".join([str(row.get(name, "")) for name in columns]) + "\r\n"


def _blocks(lines: Iterable[str]) -> Iterator[bytes]:
    """The lines as UTF-8, many at a time."""
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == _BLOCK:
            yield "".join(block).encode("utf-8", "backslashreplace")
            block = []
    yield "".join(block).encode("utf-8", "backslashreplace")
