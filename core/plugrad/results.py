"""Results: the flat dict of `Algorithm.train()`."""

from collections.abc import Mapping
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
