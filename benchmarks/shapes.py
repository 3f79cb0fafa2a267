"""Cost of a changing number of rows (compilations, time per row, memory), and of the first update."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from contestants import ENTRIES, PLUGRAD
from race import runners
from report import table
from workload import SMALL, make_batch

ROWS = [1000 + 53 * n for n in range(20)]
"""Twenty row counts between 1000 and 2007: two powers of two lie above them."""


def _chosen(options: argparse.Namespace) -> list[str]:
    return [name for name in options.only or PLUGRAD if name in PLUGRAD]


def rows(options: argparse.Namespace) -> dict[str, float]:
    """Make 20 updates with 20 different numbers of rows. Count the traces of the loss, and compare the weights."""
    figures: dict[str, Any] = {}
    weights = {}
    with runners(_chosen(options), SMALL, seed=options.seed, peers=None, core=options.core) as started:
        for name, runner in started.items():
            answers = [runner.update(n, rows=count, shuffle=False) for n, count in enumerate(ROWS)]
            calls = [answer["calls"] for answer in answers]
            figures[name] = {
                "mode": runner.what,
                "calls": calls,
                "updates_that_called": sum(b > a for a, b in zip([0, *calls], calls, strict=False)),
                "slowest_ms": 1e3 * max(answer["seconds"] for answer in answers[1:]),
            }
            weights[name] = runner.weights()
    standard = weights.get("plugrad-torch-none")
    for name, own in weights.items():
        if own is not None and standard is not None:
            figures[name]["difference"] = max(np.abs(own[k] - standard[k]).max().item() for k in own)
    lines = [_rows_line(name, each) for name, each in figures.items()]
    header = [
        "who",
        "calls of the loss",
        "updates with a call",
        "slowest after the first, ms",
        "weights, to eager torch",
    ]
    print(table(header, lines))
    print(
        "\nA compiled mode calls the loss only while it traces; eager torch calls it at every step (target: 3)."
    )
    calls = {f"{name} calls of the loss": each["calls"][-1] for name, each in figures.items()}
    return calls | {f"{name} slowest ms": each["slowest_ms"] for name, each in figures.items()}


def _rows_line(name: str, figures: dict[str, Any]) -> list[object]:
    difference = figures.get("difference")
    return [
        f"{ENTRIES[name].title} ({figures['mode']})",
        figures["calls"][-1],
        figures["updates_that_called"],
        f"{figures['slowest_ms']:.0f}",
        "not compared" if difference is None else f"{difference:.1e}",
    ]


def growth(options: argparse.Namespace) -> dict[str, float]:
    """Measure 1x, 4x and 16x rows, then 16x with four times the epochs: time per row and pass, and peak memory."""
    figures: dict[str, float] = {}
    lines: list[list[object]] = []
    for name in _chosen(options):
        with runners([name], SMALL, seed=options.seed, peers=None, core=options.core) as started:
            for factor, epochs in ((1, 10), (4, 10), (16, 10), (16, 40)):
                count = factor * SMALL.rows
                # The first one compiles, if it must.
                answers = [started[name].update(n, rows=count, epochs=epochs) for n in range(2)]
                per_row = 1e6 * answers[1]["seconds"] / count / epochs
                peak = answers[1]["peak"] / 2**20
                columns = sum(each.nbytes for each in make_batch(SMALL, 0, count).values()) / 2**20
                what = f"{name} {count} rows {epochs} epochs"
                figures |= {f"{what} us per row and pass": per_row, f"{what} peak MiB": peak}
                title = ENTRIES[name].title
                lines.append([title, count, epochs, f"{per_row:.2f}", f"{columns:.1f}", f"{peak:.1f}"])
    print(table(["who", "rows", "epochs", "us per row and pass", "batch MiB", "peak resident MiB"], lines))
    return figures


def first(options: argparse.Namespace) -> dict[str, float]:
    """Measure building and the first update: with nothing compiled before, and with the caches of the run before."""
    figures: dict[str, float] = {}
    lines: list[list[object]] = []
    for name in options.only or [name for name, entry in ENTRIES.items() if not entry.peer]:
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("cold", "warm"):
                with runners(
                    [name], SMALL, seed=options.seed, peers=None, core=options.core, cache=Path(folder)
                ) as started:
                    seconds = started[name].update(0)["seconds"]
                    again = started[name].update(1)["seconds"]
                figures |= {f"{name} {cache} s": seconds, f"{name} {cache} second s": again}
                lines.append([ENTRIES[name].title, cache, f"{seconds:.2f}", f"{again:.3f}"])
    print(table(["who", "cache", "first update, s", "second, s"], lines))
    print("\nPlugrad's targets: tf2 4 s, torch complete_update 15 s.")
    return figures
