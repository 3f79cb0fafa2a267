"""Curves as an SVG inside of a page: text, lines and bands, whose colours the page's style sheet gives."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from plugrad.cli.curves import Curve
from plugrad.cli.tables import visible
from plugrad.types import Array

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 82, 12, 14, 46
"""Room around the curves, in the units of the picture."""
NUM_COLORS = 6
"""The style sheet has classes `c0`, `c1` and so on."""
MAX_POINTS = 300
"""Points of a line; more are not seen, and make the page long."""


def chart(lines: Sequence[Curve], title: str) -> str:
    """Draw curves over environment steps.

    Args:
        lines: one or more, each with at least one point; a band is drawn where `low` and `high` differ.
        title: what a reader who hears the page is told.

    Returns:
        An `<svg>` element. Every text is escaped.
    """
    thinned = [_thinned(line) for line in lines]
    goals = sorted({line.threshold for line in lines if line.threshold is not None})
    end = max(float(line[0].max()) for line in thinned)
    x_ticks = [tick for tick in ticks(0.0, end) if tick <= end] if end > 0 else [0.0]
    lows, highs = [float(line[2].min()) for line in thinned], [float(line[3].max()) for line in thinned]
    y_ticks = ticks(min(*lows, *goals, math.inf), max(*highs, *goals, -math.inf))
    axes = _Axes((x_ticks[0], max(end, x_ticks[0] + 1.0)), y_ticks)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(visible(title))}">',
        *(axes.horizontal(tick) for tick in y_ticks),
        *(axes.below(tick) for tick in x_ticks),
        f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">environment steps</text>',
        *(axes.goal(goal) for goal in goals),
    ]
    for number, (timesteps, values, low, high) in enumerate(thinned):
        color = f"c{number % NUM_COLORS}"
        x = axes.x(timesteps)
        if not np.array_equal(low, high):
            around = [*zip(x, axes.y(high), strict=True), *zip(x[::-1], axes.y(low)[::-1], strict=True)]
            parts.append(f'<polygon class="band {color}" points="{_points(around)}"/>')
        points = list(zip(x, axes.y(values), strict=True))
        parts.append(
            f'<polyline class="line {color}" points="{_points(points)}"/>'
            if len(points) > 1
            else f'<circle class="dot {color}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="3"/>'
        )
    return "\n".join([*parts, "</svg>"])


class _Axes:
    """Where numbers stand in the picture, and the lines and texts beside them."""

    def __init__(self, x_range: tuple[float, float], y_ticks: Sequence[float]) -> None:
        self._x, self._y = x_range, (y_ticks[0], y_ticks[-1])
        self._step = y_ticks[1] - y_ticks[0]

    def x(self, value: Array) -> Array:
        first, last = self._x
        place: Array = LEFT + (value - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        return np.clip(place, LEFT, WIDTH - RIGHT)

    def y(self, value: Array) -> Array:
        first, last = self._y
        place: Array = HEIGHT - BOTTOM - (value - first) / (last - first) * (HEIGHT - TOP - BOTTOM)
        return place

    def horizontal(self, tick: float) -> str:
        y = float(self.y(np.array(tick)))
        line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        label = words(tick, self._step)
        return f'{line}<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'

    def below(self, tick: float) -> str:
        x = float(self.x(np.array(tick)))
        return f'<text class="axis" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{words(tick)}</text>'

    def goal(self, goal: float) -> str:
        y = float(self.y(np.array(goal)))
        line = f'<line class="goal" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        return f'{line}<text class="axis" x="{LEFT + 6}" y="{y - 5:.1f}">goal {words(goal)}</text>'


def ticks(low: float, high: float) -> list[float]:
    """Three to seven round numbers with equal steps of 1, 2 or 5 times a power of ten, around two numbers.

    Args:
        low: no tick but the first is below it.
        high: no tick but the last is above it; at least `low`.

    Returns:
        The numbers, in order.
    """
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):
        margin = abs(low) * 0.5 or 1.0
        low, high = low - margin, high + margin
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def words(value: float, step: float | None = None) -> str:
    """A number at an axis: "0.05", "250", "12k", "1.5M".

    Args:
        value: the number.
        step: to the next one, from which it must differ in its digits; None: three digits are enough.

    Returns:
        The words.
    """
    digits = 3
    if step is not None and value:
        digits = min(12, max(3, 1 + math.ceil(math.log10(max(abs(value) / step, 1.0)))))
    if step is not None and abs(value) < 1e-6 * step:  # a zero that was computed
        return "0"
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e3 * size:
            return f"{value / size:.{digits + 1}g}{suffix}"
    return f"{value:.{digits}g}"


def _thinned(line: Curve) -> tuple[Array, Array, Array, Array]:
    """Timesteps, values, low and high of a line: of many points the means of equal shares, and the widest band."""
    arrays = (line.timesteps, line.returns, line.low, line.high)
    if len(line.timesteps) <= MAX_POINTS:
        return arrays
    starts = np.linspace(0, len(line.timesteps), MAX_POINTS, endpoint=False).astype(int)
    sizes = np.diff([*starts, len(line.timesteps)])
    timesteps, values = (np.add.reduceat(each, starts) / sizes for each in arrays[:2])
    return timesteps, values, np.minimum.reduceat(line.low, starts), np.maximum.reduceat(line.high, starts)


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
