"""Compare a given state with the expected one, and name every difference."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from plugrad.errors import RestoreMismatchError
from plugrad.types import COMPONENT_RL_MODULE

_MAX_LISTED = 1000
"""The most entries that an error lists; a damaged file may have millions."""


def check_same_arrays(have: Mapping[str, Any], given: Any, *, where: str) -> None:
    """Check that a nested dict has the same entries as another: names, shapes, dtypes and types.

    Args:
        have: the expected nested dict, of arrays and plain values.
        given: the nested dict to check.
        where: the name of the checked object, for the message.

    Raises:
        RestoreMismatchError: they differ; lists every missing, unexpected and mismatched entry.
    """
    found: dict[str, list[str]] = {"missing": [], "unexpected": [], "mismatched": []}
    _compare({"": have}, {"": given}, "", found)
    if any(found.values()):
        listed = "; ".join(f"{kind}: {_join(paths)}" for kind, paths in found.items() if paths)
        raise RestoreMismatchError(f"the state does not fit {where}: {listed}. Nothing was changed.", **found)


def weights_of_state(state: Any) -> Mapping[str, Any]:
    """The weights in a state: the state itself, or its entry "rl_module".

    Raises:
        RestoreMismatchError: the weights are not a dict.
    """
    weights = state.get(COMPONENT_RL_MODULE, state) if isinstance(state, Mapping) else state
    if not isinstance(weights, Mapping):
        raise RestoreMismatchError(
            f"weights are a dict, found {type(weights).__name__}. Nothing was changed."
        )
    return weights


def _compare(
    have: Mapping[str, Any], given: Mapping[str, Any], path: str, found: dict[str, list[str]]
) -> None:
    for name in {**have, **given}:
        place = f"{path}/{name}" if path else str(name)
        if name not in given:
            _extend(found["missing"], _leaf_paths(have[name], place))
        elif name not in have:
            _extend(found["unexpected"], _leaf_paths(given[name], place))
        elif isinstance(have[name], Mapping) and isinstance(given[name], Mapping):
            _compare(have[name], given[name], place, found)
        elif _describe(have[name]) != _describe(given[name]):
            difference = f"{place} (expected {_describe(have[name])}, found {_describe(given[name])})"
            _extend(found["mismatched"], [difference])


def _extend(paths: list[str], more: Iterable[str]) -> None:
    paths += islice(more, _MAX_LISTED - len(paths))


def _join(paths: list[str]) -> str:
    return ", ".join(paths) + (", and perhaps more" if len(paths) >= _MAX_LISTED else "")


def _leaf_paths(value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or not value:
        yield place
        return
    for name, each in value.items():
        yield from _leaf_paths(each, f"{place}/{name}")


def _describe(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return type(value).__name__ if shape is None or dtype is None else f"{dtype}{list(shape)}"
