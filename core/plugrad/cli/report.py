"""`plugrad report`: what a run was, how it learned and how it ended, as one HTML file.

The runs may be a stranger's, and the page is shown to others. So no link of a run directory is followed: it could lead
to a file that the reader must not see. Nothing is loaded but the algorithm's settings, if it is installed.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.checkpoint.disk import disk_errors, refuse_links, replace_file
from plugrad.cli.curves import (
    Curve,
    groups_of,
    join,
    metrics_of,
    output_option,
    read_curves,
    runs_argument,
    smooth,
    smooth_option,
    tell_apart,
)
from plugrad.cli.exits import debug_option
from plugrad.cli.ls import RunLine
from plugrad.cli.metrics_files import iterate_rows
from plugrad.cli.progress import EVALUATED_RETURN, METRIC_WORDS, RETURN, WINDOW
from plugrad.cli.report_page import Figure, Film, RunContent, page
from plugrad.cli.run_directory import RunDirectory, with_those_below
from plugrad.cli.run_files import read_bytes
from plugrad.cli.terminal import waiting
from plugrad.cli.trained import alone, plugin_option
from plugrad.cli.trust import options_to_vouch
from plugrad.errors import CheckpointUnsafeError, ConfigError
from plugrad.types import ALL_MODULES

MAX_RUNS = 200
MAX_FIGURES = 12
MAX_FILM_BYTES = 16 * 2**20
_READ = ("config.toml", "metrics.jsonl", "summary.json", "train.lock")
_FILMS = ("video.gif", "video.webp", "video.png")
"""What `plugrad video` writes in a run directory."""
_HEADS = {b"GIF8": "image/gif", b"RIFF": "image/webp", b"\x89PNG": "image/png"}
_FIRST = {
    RETURN: f"mean return of the last {WINDOW} episodes",
    EVALUATED_RETURN: "mean return of evaluations",
    "env_runners/episode_len_mean": "mean length of these episodes in steps",
}
_INFO = "env_runners/info/"
_EVALUATION = "evaluation/"


@click.command(short_help="Write settings, curves, evaluation and film of runs as one HTML file.")
@runs_argument
@output_option("FILE.html", "The page.  [default: RUN/report.html for one run, report.html for several]")
@smooth_option
@plugin_option
@debug_option
def report(runs: tuple[Path, ...], output: Path | None, window: int) -> None:
    """Write what one or more runs were, how they learned and how they ended as one HTML file.

    The page asks nothing of the network and has no scripts. It has the settings, and those in which the runs differ;
    the curves, where runs that differ in their seed alone are one line, their median, with its 95 % bootstrap interval;
    the evaluations; the film of plugrad video RUN, if there is one; and the system that trained. A folder stands for
    the runs below it.
    """
    runs = with_those_below(runs)
    if len(runs) > MAX_RUNS:
        raise ConfigError(f"a report has at most {MAX_RUNS} runs, found {len(runs)}")
    opened = [_open(path) for path in runs]
    target = output or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    if output is None and len(runs) == 1:
        refuse_links(target, runs[0])
    with waiting(f"reading {len(runs)} runs"):
        figures = _figures(opened, window)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    above = Path(os.path.commonpath([path.absolute().parent for path in runs]))
    contents = [_content(run, str(run.path.absolute().relative_to(above))) for run in opened]
    text = page(contents, figures, made)
    with disk_errors("write", target):
        replace_file(target, text.encode("utf-8", "backslashreplace"))
    click.echo(f"{target}")


def _open(path: Path) -> RunDirectory:
    for name in _READ:
        try:
            refuse_links(path / name, path)
        except CheckpointUnsafeError as error:
            raise ConfigError(str(error)) from None
    return RunDirectory.open(path)


# --- curves ---


def _figures(runs: Sequence[RunDirectory], window: int) -> list[Figure]:
    titles = _titles(list(dict.fromkeys(name for run in runs for name in metrics_of(run))))
    found = [read_curves(run, list(titles)) for run in runs]
    figures = []
    for metric, title in titles.items():
        curves = [smooth(each[metric], window) for each in found if len(each[metric].timesteps)]
        if curves:
            figures.append(Figure(title=title, lines=_joined(curves), metric=metric))
    return figures[:MAX_FIGURES]


def _joined(curves: Sequence[Curve]) -> list[Curve]:
    groups = groups_of(tell_apart(curves))
    lines = [each[0] if len(each) == 1 else join(each, "median", "bootstrap") for each in groups]
    if len(lines) == 1:
        return lines
    # The bands of single runs would cover each other.
    return [
        replace(line, low=line.returns, high=line.returns) if len(group) == 1 else line
        for line, group in zip(lines, groups, strict=True)
    ]


def _titles(metrics: Sequence[str]) -> dict[str, str]:
    """`{metric: title}` of what is drawn: returns, numbers of the environment, and losses of each module."""
    found = {name: words for name, words in _FIRST.items() if name in metrics}
    found |= {name: name.removeprefix(_INFO) for name in metrics if name.startswith(_INFO)}
    learned = [name.split("/", 2) for name in metrics if name.startswith("learners/")]
    modules = dict.fromkeys(each[1] for each in learned if len(each) == 3 and each[1] != ALL_MODULES)
    for module in modules:
        for metric, words in METRIC_WORDS.items():
            if (name := f"learners/{module}/{metric}") in metrics:
                found[name] = words if len(modules) == 1 else f"{words} of {module}"
    return found


# --- the rest of a run ---


@dataclass(frozen=True)
class _Evaluations:
    """The last evaluation of a run, and how many there were."""

    last: Mapping[str, float]
    number: int
    best: float | None

    @classmethod
    def of(cls, run: RunDirectory) -> "_Evaluations":
        last: Mapping[str, float] = {}
        number, best = 0, None
        for row in iterate_rows(run.metrics.jsonl):
            if (value := row.get(EVALUATED_RETURN)) is not None:
                last, number = row, number + 1
                best = value if best is None else max(best, value)
        return cls({k: v for k, v in last.items() if k.startswith(_EVALUATION)}, number, best)


def _content(run: RunDirectory, name: str) -> RunContent:
    config, summary = run.read_config(), run.read_summary()
    evaluations = _Evaluations.of(run)
    words = {"evaluations": float(evaluations.number)} if evaluations.number else {}
    if evaluations.best is not None:
        words["best mean return"] = evaluations.best
    system = summary.get("system")
    film, remark = _film(run.path)
    typed = [str(run.path), *options_to_vouch(alone(config), run.path)]
    return RunContent(
        name=name,
        line=RunLine.of(run.path),
        seconds=summary.get("seconds"),
        settings=config.to_dict(),
        defaults=_defaults(config),
        evaluation={**words, **{k.removeprefix(_EVALUATION): v for k, v in evaluations.last.items()}},
        film=film,
        remark=remark,
        named=shlex.join(map(_without_folders, typed)),
        system=dict(system) if isinstance(system, Mapping) else {},
    )


def _without_folders(word: str) -> str:
    """A word of a command, where an absolute path begins in the current folder: readers need not see those above."""
    path, here = Path(word), Path.cwd()
    if not path.is_absolute():
        return word
    return str(path.relative_to(here)) if path.is_relative_to(here) else path.name


def _defaults(config: AlgorithmConfig) -> Mapping[str, Any]:
    return type(config)().to_dict()


def _film(run: Path) -> tuple[Film | None, str]:
    """The film of a run, or why there is none."""
    for name in _FILMS:
        path = run / name
        try:
            refuse_links(path, run)
            data = read_bytes(path, MAX_FILM_BYTES) if path.exists() else b""
        except (CheckpointUnsafeError, ConfigError) as error:
            return None, f"The film is left out: {str(error).replace(f'{run}/', '')}"
        kind = next((kind for head, kind in _HEADS.items() if data.startswith(head)), None)
        if kind is not None:
            return Film(kind=kind, data=data), ""
        if data:
            return None, f"The film is left out: {name} is no picture"
    return None, ""
