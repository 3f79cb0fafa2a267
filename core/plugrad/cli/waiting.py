"""What a person sees while a command computes for long: a line that says what it does and since when."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PATIENCE_S = 1.5
"""Whoever waits no longer sees nothing."""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A block that may take long. Where stderr is no terminal nothing is printed.

    Args:
        what: what the block does, such as "evaluating 20 episodes".
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    shown = Progress(*columns, console=console, transient=True)
    shown.add_task(what)
    timer = Timer(PATIENCE_S, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        shown.stop()
