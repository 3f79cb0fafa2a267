"""`plugrad plot`: learning curves as a picture, drawn by matplotlib."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import click

from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.cli.curves import (
    MAX_DRAWN,
    Center,
    Curve,
    Interval,
    groups_of,
    interval_words,
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
from plugrad.cli.progress import RETURN, WINDOW
from plugrad.cli.run_directory import RunDirectory, with_those_below
from plugrad.cli.terminal import visible
from plugrad.cli.trained import plugin_option
from plugrad.errors import ConfigError, MissingFrameworkError, did_you_mean

COLORS = ("#1f83c6", "#d9652b", "#159e74", "#b565a7", "#b58900", "#6b7f99")
"""In the order of Okabe and Ito's, which the colour-blind tell apart; all are seen on white and on black."""
RETURN_WORDS = f"mean return of the last {WINDOW} episodes"
_DASHES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.5)))
"""When all colours are used, the next lines are dashed."""
_LIGHT = {"paper": "#ffffff", "ink": "#1a202c", "muted": "#5a6678", "grid": "#e2e8f0"}
_DARK = {"paper": "#14171c", "ink": "#e8ebf0", "muted": "#a0aab8", "grid": "#2d333d"}
SVG_OF_READER = (
    b"<style>@media (prefers-color-scheme: dark){#figure_1{filter: invert(0.92) hue-rotate(180deg)}}</style>"
)
"""Turns a light picture dark where the reader's pages are, and keeps its hues."""


@click.command()
@runs_argument
@output_option("FILE.png", "The picture.")
@click.option(
    "--metric", metavar="NAME", default=RETURN, help=f"A column of metrics.csv.  [default: {RETURN}]"
)
@smooth_option
@click.option(
    "--center",
    type=click.Choice(get_args(Center)),
    default="median",
    help="What is drawn of several seeds.  [default: median]",
)
@click.option(
    "--interval",
    type=click.Choice(get_args(Interval)),
    default="bootstrap",
    help="The band around it: its 95 % bootstrap interval over the seeds, one standard deviation, or lowest to "
    "highest. runs: a thin line of each seed.  [default: bootstrap]",
)
@click.option(
    "--dark", is_flag=True, help="On a dark ground. An SVG follows the reader's settings by itself."
)
@plugin_option
@debug_option
def plot(
    runs: tuple[Path, ...],
    output: Path | None,
    metric: str,
    window: int,
    center: Center,
    interval: Interval,
    dark: bool,
) -> None:
    """Draw the learning curves of one or more runs.

    The picture is RUN/curve.png for one run and curves.png for several, unless -o names another file. Runs that
    differ in their seed alone are one line with an interval; others are named by the settings in which they differ.
    After its end a run keeps its last value. A folder stands for the runs below it.
    """
    runs = with_those_below(runs)
    opened = [RunDirectory.open(path) for path in runs]
    curves = [smooth(read_curves(run, [metric])[metric], window) for run in opened]
    if find_spec("matplotlib") is None:
        raise MissingFrameworkError('plugrad plot needs matplotlib: pip install "plugrad[plot]"')
    empty = [run for run, curve in zip(opened, curves, strict=True) if not len(curve.timesteps)]
    if empty:
        raise _nothing_to_draw(empty, metric)
    target = output or (runs[0] / "curve.png" if len(runs) == 1 else Path("curves.png"))
    what = RETURN_WORDS if metric == RETURN else visible(metric[:100])
    if window > 1:
        what += f"\nsmoothed over {window} iterations"
    draw(tell_apart(curves), target, what=what, center=center, interval=interval, dark=dark)
    click.echo(f"{target}")


def _nothing_to_draw(empty: Sequence[RunDirectory], metric: str) -> ConfigError:
    paths = ", ".join(str(run.path) for run in empty)
    if metric != RETURN:
        known = metrics_of(empty[0])
        if metric not in known:
            names = ", ".join(visible(name[:100]) for name in known[:50])
            return ConfigError(
                f"no metric {metric!r} in {paths}.{did_you_mean(metric, known)} It has: {names}"
            )
        return ConfigError(f"nothing to draw in {paths}: {metric} has no finite number up to {MAX_DRAWN:g}")
    return ConfigError(
        f"nothing to draw in {paths}: no episode has ended yet, or its mean return is no number that can be drawn "
        f"(finite, and at most {MAX_DRAWN:g})"
    )


def draw(
    curves: Sequence[Curve],
    path: Path,
    *,
    what: str = RETURN_WORDS,
    center: Center = "median",
    interval: Interval = "bootstrap",
    dark: bool = False,
    colors: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw all curves in one picture.

    Args:
        curves: one or more, each with at least one point. Those with equal label and settings are seeds of one.
        path: the file; its suffix decides the format. The folder is made.
        what: text at the axis of returns.
        center: what is drawn of several seeds; see `plugrad.cli.curves.join`.
        interval: the band around it.
        dark: whether the ground is dark.
        colors: `{label: color}` of curves that have the same one in all pictures; others take theirs in order.

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
    inks = _DARK if dark else _LIGHT
    figure, axes = plt.subplots(figsize=(8, 4.8), dpi=160, layout="constrained", facecolor=inks["paper"])
    groups = groups_of(curves)
    for number, (group, color) in enumerate(zip(groups, cycle(COLORS), strict=False)):
        dash = _DASHES[number // len(COLORS) % len(_DASHES)]
        line = group[0] if len(group) == 1 else join(group, center, interval)
        color = colors.get(group[0].label, color)
        axes.plot(
            line.timesteps,
            line.returns,
            color=color,
            linewidth=2.0,
            linestyle=dash,
            label=_as_label(line.label),
        )
        if len(curves) == 1 or len(group) > 1:  # the bands of several single runs would cover each other
            axes.fill_between(line.timesteps, line.low, line.high, color=color, alpha=0.18, linewidth=0)
        if len(group) > 1 and interval == "runs":
            for curve in group:
                axes.plot(curve.timesteps, curve.returns, color=color, linewidth=0.8, alpha=0.4)
    _draw_thresholds(axes, curves, inks["muted"])
    _style_axes(axes, len(groups), what + _band_words(groups, what, center, interval), inks)
    # The same curves give the same SVG.
    with plt.rc_context({"svg.hashsalt": "plugrad"}):
        figure.savefig(picture, format=form, metadata={"Date": None} if form == "svg" else None)
    plt.close(figure)
    data = picture.getvalue()
    if form == "svg" and not dark:
        data = data.replace(b"<defs>", SVG_OF_READER + b"<defs>", 1)
    with disk_errors("write", path):
        replace_file(path, data)


def _band_words(groups: Sequence[Sequence[Curve]], what: str, center: Center, interval: Interval) -> str:
    words = ""
    if any(len(group) > 1 for group in groups):
        words = interval_words(center, interval)
    elif len(groups) == 1 and what.startswith(RETURN_WORDS):
        words = "lowest to highest of them"
    return f"\n(band: {words})" if words else ""


def _as_label(text: str) -> str:
    """A text without the formulas that matplotlib would draw."""
    plain = visible(text).replace("$", r"\$")
    return f"({plain})" if plain.startswith("_") else plain  # matplotlib leaves out labels that begin so


def _draw_thresholds(axes: Any, curves: Sequence[Curve], color: str) -> None:
    for threshold in sorted({curve.threshold for curve in curves if curve.threshold is not None}):
        axes.axhline(threshold, color=color, linewidth=0.9, linestyle=(0, (5, 4)))
        axes.annotate(
            f"threshold {threshold:g}",
            (0.0, threshold),
            xycoords=("axes fraction", "data"),
            xytext=(6, 3),
            textcoords="offset points",
            ha="left",
            va="bottom",
            fontsize=8,
            color=color,
        )


def _style_axes(axes: Any, groups: int, what: str, inks: Mapping[str, str]) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_facecolor(inks["paper"])
    axes.set_xlabel("environment steps", color=inks["ink"])
    axes.set_ylabel(what.replace("$", r"\$"), color=inks["ink"])
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
    axes.set_xlim(left=0)
    axes.margins(x=0.01)
    axes.grid(True, color=inks["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(inks["muted"])
    axes.tick_params(colors=inks["muted"])
    if groups == 1:
        axes.set_title(axes.get_legend_handles_labels()[1][0], loc="left", fontsize=11, color=inks["ink"])
    else:
        # Below the picture: it covers no curve and leaves the whole width to them.
        axes.figure.legend(frameon=False, loc="outside lower left", fontsize=9, labelcolor=inks["ink"])


def _thousands(value: float, position: int | None = None) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"
