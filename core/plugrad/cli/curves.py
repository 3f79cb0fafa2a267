"""Curves of runs: read from their metrics, grouped by settings, smoothed, and joined over seeds with an interval."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from plugrad.cli.metrics_files import iterate_rows
from plugrad.cli.options import toml_literal
from plugrad.cli.progress import EVALUATED_RETURN, RETURN, TIMESTEPS
from plugrad.cli.run_directory import RunDirectory
from plugrad.cli.terminal import visible
from plugrad.types import Array

Center = Literal["median", "mean"]
Interval = Literal["bootstrap", "sd", "minmax", "runs", "none"]
"""What is drawn around the center of several runs; `runs` are thin lines of each."""

MAX_DRAWN = 1e100
"""Pictures are computed with squares and differences of what is drawn."""
MAX_NAMED = 3
"""Settings in the label of a run."""
GRID = 200
"""Timesteps at which the curves of several runs are joined."""
RESAMPLES = 2000
_ALIKE = ("seed", "observation_space", "action_space")
"""Settings in which runs of one experiment may differ: a run that was resumed names the spaces of its environment."""
_RETURNS = (RETURN, EVALUATED_RETURN)
_BAND = {RETURN: ("env_runners/episode_return_min", "env_runners/episode_return_max")}
"""Metrics whose lowest and highest values are metrics, too."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One metric of one run.

    Attributes:
        label: algorithm, environment and backend.
        settings: as `AlgorithmConfig.to_dict` gives them, but for seed and spaces. Runs with the same label and
            settings are drawn as seeds of one experiment.
        timesteps: environment steps, float [N].
        returns: the metric, such as the mean return of the last episodes, float [N].
        low: the lowest return of these episodes, float [N]; of another metric the metric itself.
        high: the highest return of these episodes, float [N]; of another metric the metric itself.
        threshold: the reward goal of the run, or None; None for what is no return.

    No number is infinite, nan or above `MAX_DRAWN`.
    """

    label: str
    timesteps: Array
    returns: Array
    low: Array
    high: Array
    threshold: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_curves(run: RunDirectory, metrics: Sequence[str]) -> dict[str, Curve]:
    """Read some metrics of a run directory; numbers that cannot be drawn are left out.

    Args:
        run: the run directory.
        metrics: names of columns of `metrics.jsonl`.

    Returns:
        `{metric: curve}` in the order of `metrics`; a metric that the run does not have has a curve of no points.
    """
    config, summary = run.read_config(), run.read_summary()
    columns = {metric: tuple(array("d") for _ in range(4)) for metric in metrics}
    for row in iterate_rows(run.metrics.jsonl):
        if not _can_be_drawn(row[TIMESTEPS]):
            continue
        for metric, (timesteps, values, low, high) in columns.items():
            if (value := row.get(metric)) is not None and _can_be_drawn(value):
                ends = [row.get(name, value) for name in _BAND.get(metric, ())] or [value, value]
                timesteps.append(row[TIMESTEPS])
                values.append(value)
                low.append(ends[0] if _can_be_drawn(ends[0]) else value)
                high.append(ends[1] if _can_be_drawn(ends[1]) else value)
    algorithm = summary.get("algorithm") or type(config).__name__.removesuffix("Config").lower()
    goal = summary.get("reward_goal")
    threshold = float(goal) if isinstance(goal, int | float) and _can_be_drawn(goal) else None
    settings = {name: value for name, value in config.to_dict().items() if name not in _ALIKE}
    return {
        metric: Curve(
            label=visible(f"{algorithm} on {config.env}, {config.backend}"[:200]),
            timesteps=np.array(timesteps),
            returns=np.array(values),
            low=np.array(low),
            high=np.array(high),
            threshold=threshold if metric in _RETURNS else None,
            settings=settings,
        )
        for metric, (timesteps, values, low, high) in columns.items()
    }


def metrics_of(run: RunDirectory) -> list[str]:
    """The names of all metrics of a run, in the order in which they came."""
    return list(dict.fromkeys(name for row in iterate_rows(run.metrics.jsonl) for name in row))


def _can_be_drawn(number: float) -> bool:
    return abs(number) <= MAX_DRAWN  # not where it is nan


# --- which runs are seeds of one experiment ---


def tell_apart(curves: Sequence[Curve]) -> list[Curve]:
    """Curves whose labels have the settings in which runs of one label differ, at most `MAX_NAMED` of them."""
    return [_named(curve, [each for each in curves if each.label == curve.label]) for curve in curves]


def _named(curve: Curve, alike: Sequence[Curve]) -> Curve:
    differing = {
        name: value
        for name, value in curve.settings.items()
        if any(each.settings.get(name) != value for each in alike)
    }
    words = [visible(f"{name}={toml_literal(differing[name])}"[:60]) for name in differing]
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return replace(curve, label=", ".join([curve.label, *words[:MAX_NAMED]]) + more)


def groups_of(curves: Sequence[Curve]) -> list[list[Curve]]:
    """The seeds of each experiment, in the order of its first run."""
    groups: list[list[Curve]] = []
    for curve in curves:
        same = [each for each in groups if (each[0].label, each[0].settings) == (curve.label, curve.settings)]
        if same:
            same[0].append(curve)
        else:
            groups.append([curve])
    return groups


# --- smoothing, and the seeds of one experiment as one curve ---


def smooth(curve: Curve, window: int) -> Curve:
    """The mean of each point and the points before it; at the beginning of as many as there are.

    Args:
        curve: what is smoothed, its band too.
        window: points of a mean; 1 changes nothing.
    """
    if window == 1 or not len(curve.timesteps):
        return curve
    means = [_trailing_mean(each, window) for each in (curve.returns, curve.low, curve.high)]
    return replace(curve, returns=means[0], low=means[1], high=means[2])


def _trailing_mean(values: Array, window: int) -> Array:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - window, 0)
    means: Array = (sums[last] - sums[first]) / (last - first)
    return means


def join(group: Sequence[Curve], center: Center, interval: Interval) -> Curve:
    """The seeds of one experiment as one curve.

    The timesteps are those that all seeds have reached, to the end of the longest: after its end a run keeps its last
    value.

    Args:
        group: runs of one experiment, each with at least one point.
        center: what is drawn of them at each timestep.
        interval: `bootstrap` is the 95 % percentile interval of the center over resampled runs (Efron and Tibshirani
            1993, section 13.3); `sd` is one standard deviation (divided by n - 1) to both sides of the center;
            `minmax` is from the lowest run to the highest. The others give no band.

    Returns:
        A curve of `GRID` points with the interval in `low` and `high`.
    """
    start, stop = max(each.timesteps[0] for each in group), max(each.timesteps[-1] for each in group)
    grid = np.linspace(start, stop, GRID)
    values = np.array([np.interp(grid, each.timesteps, each.returns) for each in group])
    middle = _CENTERS[center](values, axis=0)
    low = high = middle
    if interval == "minmax":
        low, high = values.min(axis=0), values.max(axis=0)
    elif interval == "sd":
        spread = values.std(axis=0, ddof=1) if len(group) > 1 else np.zeros_like(middle)
        low, high = middle - spread, middle + spread
    elif interval == "bootstrap":
        drawn = np.random.default_rng(0).integers(len(group), size=(RESAMPLES, len(group)))
        # One timestep after the other: all of them at once would need gigabytes for a hundred runs.
        ends = [
            np.percentile(_CENTERS[center](column[drawn], axis=1), [2.5, 97.5], axis=0) for column in values.T
        ]
        low, high = np.array(ends).T
    label = f"{group[0].label}: {center} of {len(group)} runs"
    return replace(group[0], label=label, timesteps=grid, returns=middle, low=low, high=high)


_CENTERS: Mapping[str, Any] = {"median": np.median, "mean": np.mean}


def interval_words(center: Center, interval: Interval) -> str:
    """What the band around several runs is; empty where there is none."""
    words = {
        "bootstrap": f"95 % bootstrap interval of the {center}",
        "sd": "one standard deviation",
        "minmax": "lowest to highest run",
    }
    return words.get(interval, "")


# --- what plugrad plot and plugrad report take ---


runs_argument = click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN [RUN ...]",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
smooth_option = click.option(
    "--smooth",
    "window",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    help="Draw the mean of the last N iterations.  [default: 1]",
)


def output_option(metavar: str, help: str) -> Callable[[Any], Any]:
    """`-o`, `--output`: the file to write.

    Args:
        metavar: how the help names the file, such as "FILE.png".
        help: what it is.

    Returns:
        A decorator of a command.
    """
    return click.option(
        "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar=metavar, help=help
    )
