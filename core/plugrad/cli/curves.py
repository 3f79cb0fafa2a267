"""Drawing learning curves with matplotlib, off screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from plugrad.cli.progress import RETURN, TIMESTEPS, WINDOW
from plugrad.cli.run_directory import RunDirectory
from plugrad.types import Array

matplotlib.use("Agg")

COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#b83280", "#4a5568")
_LOW, _HIGH = "env_runners/episode_return_min", "env_runners/episode_return_max"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One run's mean return by timesteps.

    Attributes:
        label: algorithm, environment and backend: runs with one label are seeds of one experiment.
        timesteps: [N].
        returns: mean over the last episodes, [N].
        low: the lowest of these episodes, [N]; likewise `high`.
        threshold: the return at which the run was to stop, or None.
    """

    label: str
    timesteps: Array
    returns: Array
    low: Array
    high: Array
    threshold: float | None

    @classmethod
    def of(cls, run: RunDirectory) -> "Curve":
        """From a run directory."""
        config, summary = run.read_config(), run.read_summary()
        rows = [row for row in run.metrics.rows if RETURN in row]
        algorithm = summary.get("algorithm") or type(config).__name__.removesuffix("Config").lower()
        goal = summary.get("reward_goal")
        return cls(
            label=_plain(f"{algorithm} on {config.env}, {config.backend}"),
            timesteps=np.array([row[TIMESTEPS] for row in rows]),
            returns=np.array([row[RETURN] for row in rows]),
            low=np.array([row.get(_LOW, row[RETURN]) for row in rows]),
            high=np.array([row.get(_HIGH, row[RETURN]) for row in rows]),
            threshold=goal if type(goal) in (int, float) else None,
        )


def _plain(label: str) -> str:
    """A stranger's text, short and with no formulas in it."""
    return label[:200].replace("$", r"\$")


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Write the picture of all curves to `path`; the suffix says in which format."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.8), dpi=160, layout="constrained")
    labels = list(dict.fromkeys(curve.label for curve in curves))
    for number, label in enumerate(labels):
        group = [curve for curve in curves if curve.label == label]
        color = COLORS[number % len(COLORS)]
        _draw_one(axes, group[0], color) if len(group) == 1 else _draw_seeds(axes, group, color)
    if len(curves) == 1:  # the bands of several runs would lie on each other
        _draw_band(axes, curves[0], COLORS[0])
    _draw_thresholds(axes, curves)
    _dress(axes, labels, has_band=len(curves) == 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def _draw_one(axes: Any, curve: Curve, color: str) -> None:
    axes.plot(curve.timesteps, curve.returns, color=color, linewidth=2.0, label=curve.label)


def _draw_band(axes: Any, curve: Curve, color: str) -> None:
    axes.fill_between(curve.timesteps, curve.low, curve.high, color=color, alpha=0.12, linewidth=0)


def _draw_seeds(axes: Any, group: Sequence[Curve], color: str) -> None:
    for curve in group:
        axes.plot(curve.timesteps, curve.returns, color=color, linewidth=0.8, alpha=0.4)
    # Seeds stop at different timesteps; behind its end a run keeps its last return.
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


def _dress(axes: Any, labels: Sequence[str], *, has_band: bool) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_xlabel("environment steps")
    band = "\n(band: lowest to highest of them)" if has_band else ""
    axes.set_ylabel(f"mean return of the last {WINDOW} episodes{band}")
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
    if len(labels) == 1:
        axes.set_title(axes.get_legend_handles_labels()[1][0], loc="left", fontsize=11, fontweight="bold")
    else:
        axes.legend(frameon=False, loc="best", fontsize=9)


def _thousands(value: float, position: int | None = None) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"
