"""What the zoo has still to run, the quickest runs first, with an estimate of the hours."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from report import table
from zoo_cell import Cell
from zoo_table import Files


def print_plan(files: Files, cells: Iterable[Cell], libraries: Sequence[str]) -> None:
    """Print a line for each cell and library with runs to do.

    Args:
        files: the runs that are done.
        cells: all cells.
        libraries: those that are trained.
    """
    rows = []
    for cell in cells:
        for library in libraries:
            left = cell.seeds - len(files[cell.name, library])
            if left > 0:
                rows.append((cell, library, left, left * _hours(files, cell, library)))
    rows.sort(key=lambda row: row[3] / row[2])
    lines = [
        [cell.name, library, f"{left} of {cell.seeds}", f"{hours:.1f}"] for cell, library, left, hours in rows
    ]
    total = sum(hours for *_, hours in rows)
    print(table(["cell", "library", "runs to do", "hours"], [*lines, ["", "", "", f"{total:.0f}"]]))


def _hours(files: Files, cell: Cell, library: str) -> float:
    """Hours of a run, as those of the cell took, else those of its algorithm by their steps; none: of all.

    Runs on a busy machine count as they are: hours are rather too many.
    """
    done = [run for runs in files.values() for run in runs]
    same: list[list[dict[str, Any]]] = [
        files[cell.name, library],
        [run for run in done if (run["algorithm"], run["library"]) == (cell.algorithm, library)],
        [run for run in done if run["algorithm"] == cell.algorithm],
        done,
    ]
    runs = next((found for found in same if found), [])
    return cell.steps * median(run["seconds"] / run["steps"] for run in runs) / 3600 if runs else 0.0
