"""What `plugrad train` shows while it trains: a live table, plain lines where there is no terminal, or
nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.live import Live

from plugrad.cli.goals import Goals
from plugrad.cli.live_table import MIN_WIDTH, LiveTable
from plugrad.cli.progress import Progress
from plugrad.cli.train_loop import Display

LINE_EVERY_S = 5.0


class OutputConsole(Console):
    """A console that says by an error, and not by leaving, that nobody reads it any more."""

    def on_broken_pipe(self) -> None:
        """Called by rich."""
        raise BrokenPipeError


@contextmanager
def open_display(console: Console, title: str, goals: Goals, *, quiet: bool) -> Iterator[Display]:
    """The display that fits where the output goes."""
    if quiet:
        yield Silence()
    elif console.is_terminal and console.width >= MIN_WIDTH:
        table = LiveTable(title, goals)
        with Live(table, console=console, refresh_per_second=4):
            yield table
    else:
        yield PlainLines(console, title)


class Silence:
    """Shows nothing."""

    def show(self, progress: Progress) -> None:
        """See the class."""


class PlainLines:
    """One line now and then: for logs and pipes.

    Args:
        console: where the lines go.
        title: the first line.
    """

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._shown_at = -LINE_EVERY_S
        self._print(title)

    def show(self, progress: Progress) -> None:
        """A line, unless one was printed a moment ago."""
        if monotonic() - self._shown_at >= LINE_EVERY_S:
            self._shown_at = monotonic()
            self._print(plain_line(progress))

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()


def plain_line(progress: Progress) -> str:
    """The progress in one line."""
    parts = [
        f"{progress.timesteps:>9,} steps",
        f"{progress.seconds:7.1f} s",
        f"{progress.steps_per_second:7,.0f}/s",
    ]
    if progress.return_mean is not None:
        parts.append(f"return {progress.return_mean:8.1f}")
    if progress.length_mean is not None:
        parts.append(f"length {progress.length_mean:7.1f}")
    losses = [metrics["total_loss"] for metrics in progress.modules.values() if "total_loss" in metrics]
    parts += [f"loss {loss:.3g}" for loss in losses]
    return "  ".join(parts)
