"""The display of `plugrad train`: a live table in a terminal, plain lines elsewhere, or nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plugrad.cli.progress import METRIC_WORDS, Goals, Progress, return_words
from plugrad.cli.train_loop import Show

# --- the live table of `plugrad train`: progress, returns, lengths, losses and speed, as wide as the terminal ---

MIN_WIDTH, MAX_WIDTH = 80, 100
"""Characters. In a narrower terminal there is no table, in a wider one it grows no more."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_HISTORY = 24


class LiveTable:
    """A rich renderable of the last progress.

    Args:
        title: what is trained.
        goals: when the run ends.
    """

    def __init__(self, title: str, goals: Goals) -> None:
        self._title = title
        self._goals = goals
        self._last: Progress | None = None
        self._first: float | None = None
        self._returns: list[float] = []
        self._every, self._num_returns = 1, 0

    def show(self, progress: Progress) -> None:
        """Keep the progress; rich draws it at its next refresh."""
        self._last = progress
        if progress.return_mean is None:
            return
        self._first = progress.return_mean if self._first is None else self._first
        if self._num_returns % self._every == 0:
            self._returns.append(progress.return_mean)
        self._num_returns += 1
        if len(self._returns) > 2 * _HISTORY:  # every other one shows as much, however long the run is
            self._returns, self._every = self._returns[::2], 2 * self._every

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        waiting = Text("collecting the first batch, and compiling what is compiled ...", style="dim")
        content = waiting if self._last is None else self._content(self._last)
        title = Text(self._title, style="bold")
        width = min(options.max_width, MAX_WIDTH)
        yield Panel(content, title=title, title_align="left", box=box.ROUNDED, width=width)

    def _content(self, progress: Progress) -> RenderableType:
        parts: list[RenderableType] = [self._progress_bar(progress), Text(), self._numbers(progress)]
        if progress.modules:
            parts += [Text(), _modules_table(progress.modules)]
        if sum(progress.stages.values()) > 0:
            parts += [Text(), Text(_stages(progress), style="dim")]
        return Group(*parts)

    def _progress_bar(self, progress: Progress) -> RenderableType:
        done = self._goals.fraction(progress, self._first)
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(ratio=1)
        for _ in range(3):
            row.add_column(justify="right", no_wrap=True)
        left = progress.session_seconds * (1.0 - done) / done if done > 0 else None
        eta = "ETA  -:--:--" if left is None else f"ETA ~{_clock(left)}"
        bar = ProgressBar(total=1.0, completed=done, complete_style="cyan", finished_style="green")
        row.add_row(bar, f"{done:4.0%}", _clock(progress.seconds), eta)
        return row

    def _numbers(self, progress: Progress) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        for style, justify in (("dim", "left"), ("bold", "right"), ("", "left")) * 2:
            grid.add_column(style=style, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        mean, length, goal = progress.return_mean, progress.length_mean, self._goals.reward
        of = "" if goal is None else f"of {goal:g}"
        rate = f"{progress.steps_per_second:,.0f}/s"
        grid.add_row("return", _short(mean), of, "steps", f"{progress.timesteps:,}", rate)
        grid.add_row(
            "best",
            _short(progress.best_mean),
            _spark(self._returns),
            "episodes",
            f"{progress.episodes:,}",
            "",
        )
        grid.add_row("length", _short(length), "", "iteration", f"{progress.iteration:,}", "")
        if progress.evaluation_mean is not None:
            grid.add_row("evaluation", _short(progress.evaluation_mean), "", "", "", "")
        return grid


def _modules_table(modules: Mapping[str, Mapping[str, float]]) -> Table:
    """One row per module, one column per known metric that any of them reports."""
    shown = [key for key in METRIC_WORDS if any(key in metrics for metrics in modules.values())]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("module", no_wrap=True)
    for key in shown:
        table.add_column(METRIC_WORDS[key], justify="right")
    for module_id, metrics in modules.items():
        table.add_row(module_id, *(_number(metrics.get(key)) for key in shown))
    return table


def _stages(progress: Progress) -> str:
    total = sum(progress.stages.values())
    shares = (f"{name} {seconds / total:.0%}" for name, seconds in progress.stages.items())
    return f"time: {', '.join(shares)}"


def _spark(values: list[float]) -> str:
    """The whole history of the mean return in `_HISTORY` blocks at most."""
    step = max(1, -(-len(values) // _HISTORY))
    points = values[::-1][::step][::-1]
    low, high = min(points, default=0.0), max(points, default=0.0)
    if high <= low:
        return ""
    return "".join(_BLOCKS[int((value - low) / (high - low) * (len(_BLOCKS) - 1))] for value in points)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _short(value: float | None) -> str:
    return "-" if value is None else return_words(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


# --- the display of `plugrad train`: a live table in a terminal, plain lines elsewhere, or nothing ---

LINE_EVERY_S = 5.0


class OutputConsole(Console):
    """A console that raises `BrokenPipeError` when nobody reads it any more; rich's own would end the process."""

    def on_broken_pipe(self) -> None:
        """Called by rich."""
        raise BrokenPipeError


@contextmanager
def open_display(console: Console, title: str, goals: Goals, *, quiet: bool) -> Iterator[Show]:
    """The display that fits the console.

    Args:
        console: where the output goes.
        title: what is trained.
        goals: when the run ends.
        quiet: show nothing.

    Yields:
        A function that shows progress.
    """
    if quiet:
        yield lambda progress: None
    elif console.is_terminal and console.width >= MIN_WIDTH:
        table = LiveTable(title, goals)
        with Live(table, console=console, refresh_per_second=4):
            yield table.show
    else:
        yield PlainLines(console, title).show


class PlainLines:
    """One line every `LINE_EVERY_S` seconds, for logs and pipes.

    Args:
        console: where the lines go.
        title: the first line.
    """

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._shown_at = -LINE_EVERY_S
        print_line(console, title)

    def show(self, progress: Progress) -> None:
        """Print a line, unless the last one is too recent."""
        if monotonic() - self._shown_at >= LINE_EVERY_S:
            self._shown_at = monotonic()
            print_line(self._console, plain_line(progress))


def print_line(console: Console, line: str) -> None:
    """Print a line at once, as it is.

    Args:
        console: where to.
        line: the line, without its end.
    """
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.file.flush()


def plain_line(progress: Progress) -> str:
    """The progress in one line."""
    parts = [
        f"{progress.timesteps:>9,} steps",
        f"{progress.seconds:7.1f} s",
        f"{progress.steps_per_second:7,.0f}/s",
    ]
    if progress.return_mean is not None:
        parts.append(f"return {progress.return_mean:8.1f}")
    if progress.evaluation_mean is not None:
        parts.append(f"evaluation {progress.evaluation_mean:8.1f}")
    if progress.length_mean is not None:
        parts.append(f"length {progress.length_mean:7.1f}")
    losses = [metrics["total_loss"] for metrics in progress.modules.values() if "total_loss" in metrics]
    parts += [f"loss {loss:.3g}" for loss in losses]
    return "  ".join(parts)
