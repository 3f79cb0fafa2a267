"""`plugrad ls`: the runs below a folder as a table. It loads no plugin and believes no file."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from plugrad.checkpoint import runs
from plugrad.cli.exits import debug_option
from plugrad.cli.metrics_files import iterate_rows, last_row
from plugrad.cli.progress import ITERATION, RETURN, TIMESTEPS, History, return_words
from plugrad.cli.run_directory import RUNS, RunDirectory, run_directories
from plugrad.cli.run_files import read_table
from plugrad.cli.terminal import plain_table, printable, waiting
from plugrad.errors import ConfigError

_TRAINING, _NO_END = "training", "no end: failed or killed"


@click.command(short_help="List the runs below a folder.")
@click.argument("folder", metavar="[DIR]", default=RUNS, type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON list, with timesteps, backend and seed."
)
@debug_option
def ls(folder: Path, as_json: bool) -> None:
    """List the runs below DIR, which is ./runs if it is left out; the newest comes first.

    A run without an end that no process trains any more has failed or was killed: plugrad train --resume goes on.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder: plugrad ls DIR lists the runs below another one")
    with waiting(f"reading the runs below {folder}"):
        found = sorted(map(RunLine.of, run_directories(folder)), key=lambda line: line.changed, reverse=True)
    if as_json:
        click.echo(json.dumps([line.document() for line in found], indent=2))
    elif not found:
        click.echo(f"no run below {folder}: a run is a folder with a {runs.CONFIG}")
    else:
        _print(found)


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """What the list says of one run.

    Attributes:
        path: the run directory.
        algorithm: its short name, as the settings have it.
        env: the environment's name, or None.
        backend: its short name.
        seed: the run's.
        iterations: done so far.
        timesteps: environment steps so far.
        last_return: mean return after the last iteration, or None.
        best_return: the best mean return, or None.
        changed: when metrics or settings were written last, in seconds since 1970.
        state: how it ended, that it is trained now, or what is wrong with its files.
    """

    path: Path
    algorithm: str | None = None
    env: str | None = None
    backend: str | None = None
    seed: int | None = None
    iterations: int = 0
    timesteps: int = 0
    last_return: float | None = None
    best_return: float | None = None
    changed: float = 0.0
    state: str = ""

    @classmethod
    def of(cls, path: Path) -> "RunLine":
        """Read a run directory; what cannot be read is said in `state`."""
        run, changed = RunDirectory(path), _changed(path)
        try:
            settings = read_table(run.config_file)
            row = last_row(run.metrics.jsonl) or {}
            summary = run.read_summary()
            is_done = bool(summary) and summary.get("iterations") == row.get(ITERATION, 0)
            best = summary.get("best_return_mean") if is_done else _best(run)
        except ConfigError as error:
            text = str(error).removeprefix(f"{path}/")
            return cls(path=path, changed=changed, state=f"cannot be read: {text}")
        return cls(
            path=path,
            algorithm=_text(settings.get("algorithm")),
            env=_text(_section(settings, "environment").get("env")),
            backend=_text(_section(settings, "framework").get("backend")),
            seed=_number(_section(settings, "debugging").get("seed"), int),
            iterations=int(row.get(ITERATION, 0)),
            timesteps=int(row.get(TIMESTEPS, 0)),
            last_return=_number(row.get(RETURN), float),
            best_return=_number(best, float),
            changed=changed,
            state=_state(run, summary if is_done else {}),
        )

    def document(self) -> dict[str, Any]:
        """As JSON has it; the time is that of ISO 8601."""
        when = datetime.fromtimestamp(self.changed, UTC).isoformat(timespec="seconds")
        return {**asdict(self), "path": str(self.path), "changed": when}


def _best(run: RunDirectory) -> float | None:
    """The best of a run that has not ended, as `summary.json` would have it."""
    history = History()
    for row in iterate_rows(run.metrics.jsonl):
        history.add(row)
    found = (history.best_evaluated, history.best_trained, history.best_of_few)
    return next((each for each in found if each is not None), None)


def _state(run: RunDirectory, summary: Mapping[str, Any]) -> str:
    if run.is_being_trained():
        return _TRAINING
    if not summary:
        return _NO_END
    ended = summary.get("ended")
    return ended.partition(":")[0].partition(", without")[0] if isinstance(ended, str) else "ended"


def _changed(path: Path) -> float:
    times = []
    for name in ("metrics.jsonl", runs.CONFIG):
        try:
            times.append(os.lstat(path / name).st_mtime)
        except OSError:
            continue
    # What a file system keeps may be outside of what a calendar has.
    return min(max(0.0, max(times, default=0.0)), 4e9)


def _section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(value: Any) -> str | None:
    return None if value is None or value == "none" else str(value)[:1000]


def _number(value: Any, kind: type[int] | type[float]) -> Any:
    """A number of this kind; None for anything else, and for what JSON cannot hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind is int:
        return value if isinstance(value, int) and abs(value) < 2**64 else None
    return float(value) if abs(value) < 1e300 else None


def _print(found: list[RunLine]) -> None:
    table = plain_table("when", "algorithm", "env", "iterations", "last", "best")
    for column in table.columns[1:3]:
        column.justify = "left"
    for head in ("state", "run"):
        table.add_column(head, no_wrap=True)
    for line in found:
        when = datetime.fromtimestamp(line.changed).strftime("%Y-%m-%d %H:%M")
        numbers = (line.last_return, line.best_return)
        returns = ["-" if each is None else return_words(each) for each in numbers]
        names = [printable(_short(each or "-", 40)) for each in (line.algorithm, line.env)]
        end = [printable(_short(line.state, 120)), printable(line.path)]
        table.add_row(when, *names, f"{line.iterations:,}", *returns, *end)
    console = Console()
    # The terminal breaks a line that is too long for it: paths are to be copied, and a program reads whole lines.
    console.width = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    console.print(table, highlight=False)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
