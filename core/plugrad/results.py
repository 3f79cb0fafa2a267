"""Results: the check of what `Learner.update` returns, and the flat dict of `Algorithm.train()`."""

from collections.abc import Collection, Mapping
from typing import Any

from plugrad.errors import ResultError, did_you_mean
from plugrad.types import ALL_MODULES, ModuleID


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


def check_result(result: Any, modules: Collection[ModuleID]) -> None:
    """Refuse what an update may not return.

    Args:
        result: what `compile_results` returned.
        modules: ids of the learner's modules.

    Raises:
        ResultError: it is not a dict, lacks `ALL_MODULES`, or has a key that is not a module id.
    """
    if not isinstance(result, dict):
        raise ResultError(
            f"the result of an update is a dict of dicts by module id; found {type(result).__name__}",
            found=type(result).__name__,
        )
    if ALL_MODULES not in result:
        raise ResultError(
            f"the result of an update has {ALL_MODULES!r}; found only {', '.join(map(repr, result)) or 'nothing'}"
        )
    for key in result:
        if key != ALL_MODULES and key not in modules:
            raise ResultError(
                f"the result of an update has module ids and {ALL_MODULES!r} as keys; {key!r} is no module of "
                f"{', '.join(modules)}.{did_you_mean(str(key), modules)}",
                module_id=key,
            )
