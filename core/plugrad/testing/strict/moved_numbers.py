"""Other values of all that changes between updates: what a trace may not take for a constant."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from plugrad.learner import Learner
from plugrad.testing.strict.connectors import piece_of
from plugrad.testing.strict.fingerprints import file_of, fingerprint
from plugrad.testing.strict.refusal import is_authors
from plugrad.types import Array

_OF_THE_CORE = frozenset({"seed", "weights_version", "counters", "num_parameters", "_given"})
_ABSENT = object()
_built: WeakKeyDictionary[Any, dict[tuple[int, str], Any]] = WeakKeyDictionary()


def remember_numbers(learner: Learner) -> None:
    """Remember the numbers that a learner's plugins keep when it is built: those that differ later do change."""
    _built[learner] = {key: fingerprint(value) for key, (_, value) in _numbers_of(learner).items()}


@contextmanager
def numbers_moved(learner: Learner) -> Iterator[None]:
    """While it lasts, a learner has other counters and results, and its plugins other numbers of those that they set.

    Args:
        learner: for which `remember_numbers` was called.
    """
    own, built = _numbers_of(learner), _built.get(learner, {})
    counters, version = dict(learner.counters), learner.weights_version
    results = learner.metrics.results
    learner.counters.update({name: value + 1000 for name, value in counters.items()})
    learner.weights_version += 1000
    learner.metrics.results = _moved_results(results)
    changed = [  # since the learner was built
        (_attributes(owner), key[1], moved(value))
        for key, (owner, value) in own.items()
        if built.get(key, fingerprint(value)) != fingerprint(value)
    ]
    before = [(attributes, name, attributes.get(name, _ABSENT)) for attributes, name, _ in changed]
    _set(changed)
    try:
        yield
    finally:
        _set(before)
        learner.counters.clear()
        learner.counters.update(counters)
        learner.weights_version, learner.metrics.results = version, results


def moved(value: Any) -> Any:
    """Other numbers of the same kind; the same object if it holds none."""
    if type(value) is int or isinstance(value, np.integer):
        return value + 1
    if isinstance(value, float | np.floating):
        return value * 1.01 + 0.01
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return moved_floats(value)
    if type(value) is dict:
        others = {key: moved(each) for key, each in value.items()}
        return others if any(others[key] is not value[key] for key in value) else value
    if type(value) in (list, tuple):
        return type(value)(map(moved, value)) if any(moved(each) is not each for each in value) else value
    return value


def moved_floats(value: Array) -> Array:
    """Other floats, each moved by another amount, so that no ratio or difference stays; other arrays as they are."""
    if value.dtype.kind != "f":
        return value
    steps = 0.01 * np.arange(1, value.size + 1, dtype=value.dtype) / max(1, value.size)
    moved_by: Array = value * 1.01 + steps.reshape(value.shape)
    return moved_by


def _moved_results(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        module_id: {
            name: value + 1 if isinstance(value, int | float) else value for name, value in each.items()
        }
        for module_id, each in results.items()
    }


def _numbers_of(learner: Learner) -> dict[tuple[int, str], tuple[Any, Any]]:
    """`{(id, name): (object, number)}`: what plugins, connectors and the learner keep, also in arrays and lists."""
    owners = [each.implementation for each in learner.plugins if each.tier in ("algorithm", "listener")]
    owners += [*map(piece_of, learner.connectors), learner]
    return {
        (id(owner), name): (owner, value)
        for owner in owners
        for name in _names(owner)
        if name not in _OF_THE_CORE and moved(value := getattr(owner, name)) is not value
    }


def _names(owner: Any) -> list[str]:
    """Attributes that are set on an object, or by the classes of authors that it is of."""
    classes = [cls for cls in type(owner).__mro__ if is_authors(file_of(cls.__module__))]
    return [
        *getattr(owner, "__dict__", {}),
        *(name for cls in classes for name, value in vars(cls).items() if moved(value) is not value),
    ]


def _set(values: Sequence[tuple[dict[str, Any], str, Any]]) -> None:
    for attributes, name, value in values:
        if value is _ABSENT:
            del attributes[name]
        else:
            attributes[name] = value


def _attributes(owner: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = vars(owner)
    return attributes
