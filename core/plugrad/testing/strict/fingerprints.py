"""Fingerprints of Python state: equal as long as nothing was set, appended or drawn."""

import sys
from collections.abc import Mapping
from functools import cache, cached_property
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from plugrad.learner import Learner
from plugrad.testing.strict.refusal import is_authors
from plugrad.testing.strict.tensor import StrictTensor

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DEEPEST = 4
_MOST = 1000
_BYTES = 1 << 16


def fingerprint(value: Any, depth: int = 0) -> Any:
    """What a value is now, comparable with what it is later.

    Args:
        value: anything.
        depth: how deep it lies in what is asked for.

    Returns:
        A nested tuple; of objects that are no author's, their identity.
    """
    if isinstance(value, _PLAIN):
        return type(value).__name__, repr(value)
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return "generator", repr(_state_of(value))
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes() if value.nbytes < _BYTES and value.dtype != object else value.shape
    # A script or a listener may keep its learner, whose state is watched by itself.
    if depth > _DEEPEST or isinstance(value, StrictTensor | ModuleType | BuiltinFunctionType | Learner):
        return type(value).__name__, id(value)
    if isinstance(value, Mapping):
        return "mapping", *_many([item for pair in list(value.items())[:_MOST] for item in pair], depth)
    if isinstance(value, list | tuple):
        return type(value).__name__, len(value), *_many(value[:_MOST], depth)
    if isinstance(value, FunctionType | MethodType):
        function = getattr(value, "__func__", value)
        is_own = is_authors(function.__code__.co_filename)
        return "function", id(function), *(_many(_kept_by(function), depth) if is_own else ())
    if isinstance(value, set | frozenset):
        return "set", frozenset(map(id, value))
    if not _is_authors_class(type(value)):
        return type(value).__name__, id(value)
    names = [name for name in getattr(value, "__dict__", {}) if not is_cached(value, name)]
    return type(value).__name__, id(value), *names, *_many([vars(value)[name] for name in names], depth)


def fingerprint_of_global(value: Any) -> Any:
    """As `fingerprint`, of a name in a file: of a class that an author wrote, its own attributes too."""
    if isinstance(value, type) and _is_authors_class(value):
        plain = {name: each for name, each in vars(value).items() if not name.startswith("__")}
        return fingerprint(plain)
    return fingerprint(value)


def is_cached(owner: Any, name: str) -> bool:
    """Whether an attribute is what `functools.cached_property` computes once."""
    return isinstance(getattr(type(owner), name, None), cached_property)


def _many(values: Any, depth: int) -> list[Any]:
    return [fingerprint(each, depth + 1) for each in values]


def _kept_by(function: Any) -> list[Any]:
    cells = [_content(cell) for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*cells, *defaults, *vars(function).values()]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _state_of(generator: Any) -> Any:
    return (
        generator.get_state()
        if isinstance(generator, np.random.RandomState)
        else generator.bit_generator.state
    )


def _is_authors_class(cls: type[Any]) -> bool:
    return any(is_authors(file_of(base.__module__)) for base in cls.__mro__)


@cache
def file_of(module: str) -> str:
    """The file of a module by its name; "<none>" if it has none."""
    return getattr(sys.modules.get(module), "__file__", None) or "<none>"
