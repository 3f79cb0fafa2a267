"""The HTML of `plugrad report`, with curves as SVG. Texts go through `_text`; it loads nothing and runs no script."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from plugrad.cli.curves import Curve
from plugrad.cli.ls import RunLine
from plugrad.cli.options import toml_literal
from plugrad.cli.progress import return_words
from plugrad.cli.terminal import visible
from plugrad.types import Array

MAX_TEXT = 2000
"""Characters of one text of a run."""
MAX_FILMS = 4
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may load for the page: nothing from elsewhere, and no script, even if one got into it."""


@dataclass(frozen=True, kw_only=True)
class Film:
    """An animated picture.

    Attributes:
        kind: its media type.
        data: the file.
    """

    kind: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One picture of curves.

    Attributes:
        title: what is drawn, in words.
        metric: its name in `metrics.csv`.
        lines: one for each run or experiment.
    """

    title: str
    metric: str
    lines: Sequence[Curve]


@dataclass(frozen=True, kw_only=True)
class RunContent:
    """What the page says of one run.

    Attributes:
        name: of the run, without the folders that all runs are in: others need not see them.
        line: as `plugrad ls` has it.
        seconds: of training, or what the summary has in its place.
        settings: as `AlgorithmConfig.to_dict` gives them.
        defaults: the same of a config in which nothing is set.
        evaluation: `{name: number}` of the last evaluation; empty if there was none.
        film: of the trained policy, or None.
        remark: why its film is left out; empty: there is none.
        named: how commands name it: its path, and the options that vouch for its code.
        system: `{name: version or description}` of the system that trained; empty if the run does not say.
    """

    name: str
    line: RunLine
    seconds: Any
    settings: Mapping[str, Any]
    defaults: Mapping[str, Any]
    evaluation: Mapping[str, float]
    film: Film | None
    remark: str
    named: str
    system: Mapping[str, Any]


def page(runs: Sequence[RunContent], figures: Sequence[Figure], made: str) -> str:
    """Write the page.

    Args:
        runs: one or more.
        figures: the curves, in order.
        made: when, in words.

    Returns:
        The HTML document.
    """
    title = _title(runs)
    sections = [
        ("Outcome", _outcome(runs)),
        ("Curves", _curves(figures)),
        ("Evaluation", _evaluation(runs)),
        ("Film", _films(runs)),
        ("Settings", _settings(runs)),
        ("System", _system(runs)),
    ]
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    body = "\n".join(f"<section>\n<h2>{head}</h2>\n{text}\n</section>" for head, text in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="muted">Made by plugrad {_text(version("plugrad"))}, {_text(made)}.</p>
{body}
</main>
</body>
</html>
"""


def _text(value: Any) -> str:
    """A text of a run, as HTML: short, without control characters, and without markup."""
    plain = str(value)
    return escape(visible(plain if len(plain) <= MAX_TEXT else f"{plain[:MAX_TEXT]} ..."), quote=True)


def _title(runs: Sequence[RunContent]) -> str:
    names = list(dict.fromkeys(f"{run.line.algorithm} on {run.line.env}" for run in runs))
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    what = _text(", ".join(names[:2]) + more)
    return what if len(runs) == 1 else f"{what}: {len(runs)} runs"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: range = range(0)) -> str:
    """A table of cells that are HTML already; it scrolls sideways where it is too wide.

    Args:
        head: of the columns.
        rows: cells.
        numbers: columns of numbers, which stand at the right.
    """

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = [' class="number"' if place in numbers else "" for place in range(len(cells))]
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    thead = f"<thead><tr>{line(head, 'th')}</tr></thead>"
    return f'<div class="wide"><table>\n{thead}\n<tbody>\n{body}\n</tbody></table></div>'


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return return_words(value) if isinstance(value, float) else f"{value:,}"


def _outcome(runs: Sequence[RunContent]) -> str:
    head = ("run", "end", "seed", "steps", "iterations", "seconds", "last return", "best return")
    rows = []
    for run in runs:
        line = run.line
        numbers = (line.timesteps, line.iterations, run.seconds, line.last_return, line.best_return)
        seed = "-" if line.seed is None else str(line.seed)
        rows.append([_text(run.name), _text(line.state), seed, *map(_number, numbers)])
    return _table(head, rows, range(2, 8))


def _curves(figures: Sequence[Figure]) -> str:
    if not figures:
        return "<p>There is nothing to draw: no episode has ended yet.</p>"
    parts = []
    for figure in figures:
        names = [
            f'<li><svg class="key" viewBox="0 0 22 8"><line class="line c{number % NUM_COLORS}" '
            f'x1="1" x2="21" y1="4" y2="4"/></svg>{_text(line.label)}</li>'
            for number, line in enumerate(figure.lines)
        ]
        legend = f"<ul>{''.join(names)}</ul>" if len(names) > 1 or "runs" in figure.lines[0].label else ""
        caption = f"<figcaption>{_text(figure.title)} <code>{_text(figure.metric)}</code></figcaption>"
        parts.append(f"<figure>\n{caption}\n{chart(figure.lines, figure.title)}\n{legend}</figure>")
    seeds = any("runs" in line.label.rpartition(": ")[2] for line in figures[0].lines)
    about = "<p>Bands are 95 % bootstrap intervals of the median over seeds.</p>" if seeds else ""
    return f'{about}<div class="figures">\n{"".join(parts)}\n</div>'


def _evaluation(runs: Sequence[RunContent]) -> str:
    names = list(dict.fromkeys(name for run in runs for name in run.evaluation))
    if not names:
        command = _text(f"plugrad eval {runs[0].named}")
        return f"<p>The training was not evaluated. This does it now: <code>{command}</code></p>"
    head = ["last evaluation", *(_text(run.name) for run in runs)]
    rows = [[_text(name), *(_metric(run.evaluation.get(name)) for run in runs)] for name in names]
    return _table(head, rows, range(1, len(head)))


def _metric(value: Any) -> str:
    return "-" if value is None else words(value)


def _films(runs: Sequence[RunContent]) -> str:
    parts = []
    for run in [each for each in runs if each.film is not None][:MAX_FILMS]:
        assert run.film is not None
        data = base64.b64encode(run.film.data).decode()
        image = f'<img alt="Episodes of the trained policy" src="data:{run.film.kind};base64,{data}">'
        parts.append(f"<figure>{image}<figcaption>{_text(run.name)}</figcaption></figure>")
    left_out = sum(run.film is not None for run in runs) - len(parts)
    if left_out:
        parts.append(f"<p>Films of {left_out} more runs are left out.</p>")
    if not parts:
        command = _text(f"plugrad video {runs[0].named}")
        none = f"There is no film; this makes one for the next report: <code>{command}</code>"
        return f"<p>{_text(runs[0].remark) or none}</p>"
    return f'<div class="figures">{"".join(parts)}</div>'


def _settings(runs: Sequence[RunContent]) -> str:
    first = runs[0].settings
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    parts = []
    differing = [name for name in names if any(run.settings.get(name) != first.get(name) for run in runs)]
    if differing:
        head = ["setting", *(_text(run.name) for run in runs)]
        rows = [[_code(name), *(_value(run.settings, name) for run in runs)] for name in differing]
        parts.append(f"<h3>In which the runs differ</h3>\n{_table(head, rows)}")
    equal = [name for name in names if name not in differing]
    changed = [name for name in equal if first.get(name) != runs[0].defaults.get(name)]
    if changed:
        rows = [[_code(name), _value(first, name), _value(runs[0].defaults, name)] for name in changed]
        parts.append(f"<h3>Other than the default</h3>\n{_table(('setting', 'value', 'default'), rows)}")
    rows = [[_code(name), _value(first, name)] for name in equal if name not in changed]
    rest = _table(("setting", "value"), rows)
    parts.append(f"<details><summary>{len(rows)} settings with their default</summary>\n{rest}</details>")
    return "\n".join(parts)


def _code(name: str) -> str:
    return f"<code>{_text(name)}</code>"


def _value(settings: Mapping[str, Any], name: str) -> str:
    return f"<code>{_text(toml_literal(settings[name]))}</code>" if name in settings else "-"


def _system(runs: Sequence[RunContent]) -> str:
    known = [run for run in runs if run.system]
    if not known:
        return "<p>The runs do not say on which system they were trained: they have not ended.</p>"
    names = list(dict.fromkeys(str(name) for run in known for name in run.system))
    systems = list(dict.fromkeys(tuple(str(run.system.get(name, "-")) for name in names) for run in known))
    rows = [[_text(name), *(_text(each[place]) for each in systems)] for place, name in enumerate(names)]
    head = (
        [""] * (1 + len(systems))
        if len(systems) == 1
        else ["", *(f"system {n + 1}" for n in range(len(systems)))]
    )
    return _table(head, rows)


# --- curves as SVG: text, lines and bands, whose colours the style sheet of the page gives ---


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
