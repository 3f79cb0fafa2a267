"""What `Algorithm.train()` returns: one flat dict whose keys are paths."""

from collections.abc import Mapping
from typing import Any


class Results(dict[str, Any]):
    """`results["env_runners/episode_return_mean"]`; `results["env_runners"]` is the part below a path."""

    def __missing__(self, key: str) -> "Results":
        prefix = f"{key}/"
        part = Results(
            {path.removeprefix(prefix): value for path, value in self.items() if path.startswith(prefix)}
        )
        if not part:
            raise KeyError(key)
        return part


def flatten(tree: Mapping[str, Any], path: str) -> dict[str, Any]:
    """`{"a/b": value}` of a nested dict below `path`."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        where = f"{path}/{name}"
        flat.update(flatten(value, where) if isinstance(value, Mapping) else {where: value})
    return flat
