"""Numbers on the command line. `float` reads "nan" too, which no number reaches and no limit refuses."""

from math import isnan
from typing import Any

import click


class Number(click.ParamType[float]):
    """A number; infinity is one.

    Args:
        above: it must be greater, if that is not None.
    """

    name = "float"

    def __init__(self, above: float | None = None) -> None:
        self.above = above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. See `click.ParamType.convert`."""
        number = float(click.FLOAT.convert(value, param, ctx))
        if isnan(number):
            self.fail(f"{value} is no number", param, ctx)
        if self.above is not None and number <= self.above:
            self.fail(f"{value} is not greater than {self.above:g}", param, ctx)
        return number


class Count(click.ParamType[int]):
    """A whole number of 1 or more, which may be written as 1e6."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. See `click.ParamType.convert`."""
        number = float(click.FLOAT.convert(value, param, ctx))
        if not (number >= 1 and number.is_integer()):
            self.fail(f"{value} is no whole number of 1 or more", param, ctx)
        return int(number)
