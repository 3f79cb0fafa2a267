"""`metrics.jsonl` and `metrics.csv`: one row of numbers per iteration, the same in both.

The JSON lines are the record, the table is made from them: a new column, or a cut after a crash, writes it
anew.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plugrad.cli.progress import ITERATION

Row = dict[str, float]


class MetricsFiles:
    """The two files of a run directory.

    Args:
        directory: where they lie; rows that are there already are kept.
    """

    def __init__(self, directory: Path) -> None:
        self.jsonl = directory / "metrics.jsonl"
        self.csv = directory / "metrics.csv"
        self.rows = read_rows(self.jsonl)
        self._columns = _columns(self.rows)

    def append(self, row: Mapping[str, float]) -> None:
        """Add one iteration to both files."""
        self.rows.append(dict(row))
        with self.jsonl.open("a", encoding="utf-8") as file:
            file.write(_line(row))
        if set(row) <= set(self._columns):
            with self.csv.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, self._columns, restval="").writerow(row)
        else:
            self._write_table()

    def cut(self, last_iteration: int) -> None:
        """Drop the rows after an iteration: what was trained after the checkpoint is trained again."""
        self.rows = [row for row in self.rows if row[ITERATION] <= last_iteration]
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
    """The rows of a `metrics.jsonl`; a last line that a crash has torn is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        rows.append({key: float(value) if isinstance(value, str) else value for key, value in row.items()})
    return rows


def _line(row: Mapping[str, float]) -> str:
    # Strict JSON has no infinity and no nan.
    plain: dict[str, Any] = {k: v if math.isfinite(v) else str(v) for k, v in row.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def _columns(rows: Iterable[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _replace(path: Path, lines: Iterable[str]) -> None:
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.writelines(lines)
    os.replace(temporary, path)
