"""The display of `plugrad train`: a live table in a terminal, plain lines elsewhere, or nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.live import Live

from plugrad.cli.live_table import MIN_WIDTH, LiveTable
from plugrad.cli.progress import Goals, Progress
from plugrad.cli.train_loop import Show

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
