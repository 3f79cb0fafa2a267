"""`plugrad plot`: learning curves as a picture, drawn by matplotlib."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import numpy as np

from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.cli.exits import debug_option
from plugrad.cli.metrics_files import iterate_rows
from plugrad.cli.options import toml_literal
from plugrad.cli.progress import RETURN, TIMESTEPS, WINDOW
from plugrad.cli.run_directory import RunDirectory
from plugrad.errors import ConfigError, MissingFrameworkError
from plugrad.types import Array

COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#b83280", "#4a5568")
MAX_DRAWN = 1e100
"""matplotlib computes with squares and differences of what it draws."""
MAX_NAMED = 3
"""Settings in the label of a run."""
_ALIKE = ("seed", "observation_space", "action_space")
"""Settings in which runs of one experiment may differ: a run that was resumed names the spaces of its environment."""
_LOW, _HIGH = "env_runners/episode_return_min", "env_runners/episode_return_max"


@click.command()
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN [RUN ...]",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.png", help="The picture."
)
@debug_option
def plot(runs: tuple[Path, ...], output: Path | None) -> None:
    """Draw the learning curves of one or more runs.

    The picture is RUN/curve.png for one run and curves.png for several, unless -o names another file. Runs that
    differ in their seed alone have one colour, and their median is drawn on top of them; others are named by the
    settings in which they differ.
    """
    curves = [Curve.of(RunDirectory.open(path)) for path in runs]
    if find_spec("matplotlib") is None:
        raise MissingFrameworkError('plugrad plot needs matplotlib: pip install "plugrad[plot]"')
    empty = [str(path) for path, curve in zip(runs, curves, strict=True) if not len(curve.timesteps)]
    if empty:
        raise ConfigError(
            f"nothing to draw in {', '.join(empty)}: no episode has ended yet, or its mean return is no number that "
            f"can be drawn (finite, and at most {MAX_DRAWN:g})"
        )
    target = output or (runs[0] / "curve.png" if len(runs) == 1 else Path("curves.png"))
    draw(_tell_apart(curves), target)
    click.echo(f"{target}")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The learning curve of one run.

    Attributes:
        label: algorithm, environment and backend.
        settings: as `AlgorithmConfig.to_dict` gives them, but for seed and spaces. Runs with the same label and
            settings are drawn as seeds of one experiment.
        timesteps: environment steps, float [N].
        returns: mean return of the last `WINDOW` episodes, float [N].
        low: the lowest return of these episodes, float [N].
        high: the highest return of these episodes, float [N].
        threshold: the reward goal of the run, or None.

    No number is infinite, nan or above `MAX_DRAWN`.
    """

    label: str
    timesteps: Array
    returns: Array
    low: Array
    high: Array
    threshold: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, run: RunDirectory) -> "Curve":
        """Read the curve of a run directory; rows whose numbers cannot be drawn are left out."""
        config, summary = run.read_config(), run.read_summary()
        drawn = (TIMESTEPS, RETURN, _LOW, _HIGH)
        rows = [
            {name: row[name] for name in drawn if name in row and _can_be_drawn(row[name])}
            for row in iterate_rows(run.metrics.jsonl)
            if RETURN in row
        ]
        rows = [row for row in rows if TIMESTEPS in row and RETURN in row]
        algorithm = summary.get("algorithm") or type(config).__name__.removesuffix("Config").lower()
        goal = summary.get("reward_goal")
        return cls(
            label=_as_label(f"{algorithm} on {config.env}, {config.backend}", 200),
            timesteps=np.array([row[TIMESTEPS] for row in rows], float),
            returns=np.array([row[RETURN] for row in rows], float),
            low=np.array([row.get(_LOW, row[RETURN]) for row in rows], float),
            high=np.array([row.get(_HIGH, row[RETURN]) for row in rows], float),
            threshold=float(goal) if isinstance(goal, int | float) and _can_be_drawn(goal) else None,
            settings={name: value for name, value in config.to_dict().items() if name not in _ALIKE},
        )


def _can_be_drawn(number: float) -> bool:
    return abs(number) <= MAX_DRAWN  # not where it is nan


def _as_label(text: str, longest: int) -> str:
    """A stranger's text: short, without the formulas that matplotlib would draw and what no font has."""
    plain = "".join(each if each.isprintable() else "?" for each in text[:longest]).replace("$", r"\$")
    return f"({plain})" if plain.startswith("_") else plain  # matplotlib leaves out labels that begin so


def _tell_apart(curves: Sequence[Curve]) -> list[Curve]:
    """Curves whose labels have the settings in which runs of one label differ, at most `MAX_NAMED` of them."""
    return [_named(curve, [each for each in curves if each.label == curve.label]) for curve in curves]


def _named(curve: Curve, alike: Sequence[Curve]) -> Curve:
    differing = {
        name: value
        for name, value in curve.settings.items()
        if any(each.settings.get(name) != value for each in alike)
    }
    words = [_as_label(f"{name}={toml_literal(differing[name])}", 60) for name in differing]
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return replace(curve, label=", ".join([curve.label, *words[:MAX_NAMED]]) + more)


def draw(
    curves: Sequence[Curve], path: Path, *, what: str = f"mean return of the last {WINDOW} episodes"
) -> None:
    """Draw all curves in one picture.

    Args:
        curves: one or more, each with at least one point.
        path: the file; its suffix decides the format. The folder is made.
        what: text at the axis of returns.

    Raises:
        ConfigError: matplotlib writes no such format.
        CheckpointError: the disk refused, or the file is a link or no regular file.
    """
    import matplotlib  # late: --help needs no matplotlib

    matplotlib.use("Agg")  # draws without a screen
    from matplotlib import pyplot as plt

    picture, form = BytesIO(), path.suffix[1:].lower() or "png"
    known = matplotlib.backend_bases.FigureCanvasBase.get_supported_filetypes()
    if form not in known:
        raise ConfigError(
            f"{path}: expected a name that ends with one of {', '.join(f'.{each}' for each in known)}"
        )
    figure, axes = plt.subplots(figsize=(8, 4.8), dpi=160, layout="constrained")
    groups = _groups(curves)
    for number, group in enumerate(groups):
        color = COLORS[number % len(COLORS)]
        if len(group) == 1:
            axes.plot(group[0].timesteps, group[0].returns, color=color, linewidth=2.0, label=group[0].label)
        else:
            _draw_seeds(axes, group, color)
    if len(curves) == 1:  # the bands of several runs would cover each other
        (curve,) = curves
        axes.fill_between(curve.timesteps, curve.low, curve.high, color=COLORS[0], alpha=0.12, linewidth=0)
    _draw_thresholds(axes, curves)
    _style_axes(axes, len(groups), what + ("\n(band: lowest to highest of them)" if len(curves) == 1 else ""))
    # The same curves give the same SVG.
    with plt.rc_context({"svg.hashsalt": "plugrad"}):
        figure.savefig(picture, format=form, metadata={"Date": None} if form == "svg" else None)
    plt.close(figure)
    with disk_errors("write", path):
        replace_file(path, picture.getvalue())


def _groups(curves: Sequence[Curve]) -> list[list[Curve]]:
    """The seeds of each experiment, in the order of its first run."""
    groups: list[list[Curve]] = []
    for curve in curves:
        same = [each for each in groups if (each[0].label, each[0].settings) == (curve.label, curve.settings)]
        if same:
            same[0].append(curve)
        else:
            groups.append([curve])
    return groups


def _draw_seeds(axes: Any, group: Sequence[Curve], color: str) -> None:
    for curve in group:
        axes.plot(curve.timesteps, curve.returns, color=color, linewidth=0.8, alpha=0.4)
    # Seeds stop at different timesteps; after its end a run keeps its last return.
    grid = np.linspace(
        max(curve.timesteps[0] for curve in group), max(curve.timesteps[-1] for curve in group), 200
    )
    median = np.median([np.interp(grid, curve.timesteps, curve.returns) for curve in group], axis=0)
    label = f"{group[0].label}: median of {len(group)} runs"
    axes.plot(grid, median, color=color, linewidth=2.2, label=label)


def _draw_thresholds(axes: Any, curves: Sequence[Curve]) -> None:
    for threshold in sorted({curve.threshold for curve in curves if curve.threshold is not None}):
        axes.axhline(threshold, color="#718096", linewidth=0.9, linestyle=(0, (5, 4)))
        axes.annotate(
            f"threshold {threshold:g}",
            (0.0, threshold),
            xycoords=("axes fraction", "data"),
            xytext=(6, 3),
            textcoords="offset points",
            ha="left",
            va="bottom",
            fontsize=8,
            color="#718096",
        )


def _style_axes(axes: Any, groups: int, what: str) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_xlabel("environment steps")
    axes.set_ylabel(what)
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.set_xlim(left=0)
    axes.margins(x=0.01)
    axes.grid(True, color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#a0aec0")
    axes.tick_params(colors="#4a5568")
    if groups == 1:
        axes.set_title(axes.get_legend_handles_labels()[1][0], loc="left", fontsize=11, fontweight="bold")
    else:
        # Below the picture: it covers no curve and leaves the whole width to them.
        axes.figure.legend(frameon=False, loc="outside lower left", fontsize=9)


def _thousands(value: float, position: int | None = None) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"
