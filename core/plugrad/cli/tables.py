"""Tables on the terminal, and texts of strangers that stand in them."""

from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table


def visible(text: Any) -> str:
    """A stranger's text with its control characters written as `\\x1b`."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in str(text))


def printable(text: Any) -> str:
    """A stranger's text for rich: without control characters and without markup."""
    return escape(visible(text))


def plain_table(first: str, *others: str) -> Table:
    """A table without lines between its columns.

    Args:
        first: head of the first column; long texts in it are folded.
        *others: heads of the others, which stand at the right and are never folded.

    Returns:
        The table, without rows.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, overflow="fold")
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table
