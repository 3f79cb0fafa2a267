"""Results: the flat dict of `Algorithm.train()`, and tables for notebooks."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


class Results(dict[str, Any]):
    """A flat dict of results by path, such as `results["env_runners/episode_return_mean"]`.

    `results["env_runners"]` gives the results below that path; `in` and `get` accept such a path, too.
    """

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):
            return True
        prefix = f"{key}/"
        return isinstance(key, str) and any(path.startswith(prefix) for path in self)

    def get(self, key: str, default: Any = None) -> Any:
        """The result at a path, or those below it; the default if there is none."""
        try:
            return self[key]
        except KeyError:
            return default

    def copy(self) -> "Results":
        """The same results in another dict."""
        return Results(self)

    def __missing__(self, key: str) -> "Results":
        prefix = f"{key}/"
        part = Results(
            {path.removeprefix(prefix): value for path, value in self.items() if path.startswith(prefix)}
        )
        if not part:
            raise KeyError(key)
        return part

    def _repr_html_(self) -> str:
        """A table, as notebooks show it."""
        return html_table(("result", "value"), self.items())


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table for notebooks.

    Args:
        head: of the columns.
        rows: cells of any type; floats get five digits. Every text is escaped.

    Returns:
        A `<table>` element.
    """

    def line(cells: Sequence[Any], tag: str) -> str:
        texts = (f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in cells)
        inner = "".join(f'<{tag} style="text-align: left">{escape(text)}</{tag}>' for text in texts)
        return f"<tr>{inner}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def flatten(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Flatten a nested dict.

    Args:
        tree: nested dicts.
        path: prefix of all keys.

    Returns:
        `{"<path>/a/b": value}`.
    """
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        where = f"{path}/{name}" if path else name
        flat.update(flatten(value, where) if isinstance(value, Mapping) else {where: value})
    return flat
