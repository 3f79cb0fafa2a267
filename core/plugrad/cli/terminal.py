"""What a person sees on the terminal: tables, texts of strangers in them, and what a command does that takes long."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


def visible(text: Any) -> str:
    """A stranger's text with its control characters written as `\\x1b`."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in str(text))


def printable(text: Any) -> str:
    """A stranger's text for rich: without control characters and without markup."""
    return escape(visible(text))


def text_table(*heads: str, whole: Collection[str] = (), width: int | None = None) -> Table:
    """A table of texts without lines between its columns.

    Args:
        *heads: of the columns; long texts are folded.
        whole: heads of columns whose texts are never folded.
        width: in characters; None: as the texts need.

    Returns:
        The table, without rows.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, width=width)
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in whole)
    return table


def plain_table(first: str, *others: str) -> Table:
    """The same of a text, which is folded if it is long, and numbers, which stand at the right and are not."""
    table = text_table(first)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


# --- while a command computes for long ---


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
