"""The Python state that a traced step must leave alone: of the learner, its plugins, modules, connectors and files.

It is compared by fingerprints, which are equal as long as nothing was set, appended or drawn. Some of it gets other
numbers for a trace, since no trace may take them for constants.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from plugrad.hooks.author_line import Line
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.learner import Learner
from plugrad.networks import Network
from plugrad.testing.strict.refusal import boundary, foreign_errors_refused, is_authors, refuse
from plugrad.testing.strict.tensor import StrictTensor
from plugrad.types import Array

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
    """Whether an attribute is what was looked up once, whenever that was: of a property, or a network's classes."""
    if isinstance(owner, Network) and name == "_classes":
        return True
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


Columns = dict[str, dict[str, Any]]


class StrictPiece:
    """A connector piece that is watched.

    Args:
        piece: an author's.
    """

    def __init__(self, piece: Callable[..., Columns]) -> None:
        object.__setattr__(self, "piece", piece)

    @boundary
    def __call__(self, *, learner: LearnerProtocol, batch: Columns, episodes: Any) -> Columns:
        """Call the piece.

        Raises:
            PortabilityError: it changes an array in place, or gives what is no array.
        """
        with _read_only((batch, list(map(vars, episodes)))), foreign_errors_refused():
            answer: Columns = self.piece(learner=learner, batch=batch, episodes=episodes)
        _check_columns(answer, _line_of(self.piece))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "piece"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.piece, name, value)


def watch_connectors(learner: LearnerProtocol) -> None:
    """From now on, watch the authors' connector pieces of a learner."""
    pieces: Any = learner
    pieces.connectors = [
        each if isinstance(each, StrictPiece) or not is_authors(_line_of(each)[0]) else StrictPiece(each)
        for each in learner.connectors
    ]


def piece_of(connector: Any) -> Any:
    """The author's piece behind one that is watched."""
    return connector.piece if isinstance(connector, StrictPiece) else connector


def _line_of(piece: Any) -> Line:
    function = getattr(piece, "__func__", piece)
    code = getattr(function, "__code__", None) or getattr(type(piece).__call__, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("<unknown>", 0)


@contextmanager
def _read_only(tree: Any) -> Iterator[None]:
    arrays = [each for each in _arrays(tree) if each.flags.writeable]
    for each in arrays:
        each.flags.writeable = False
    try:
        yield
    finally:
        for each in arrays:
            each.flags.writeable = True


def _arrays(tree: Any) -> Iterator[Array]:
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, Mapping):
        for each in tree.values():
            yield from _arrays(each)
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from _arrays(each)


def _check_columns(answer: Any, line: Line) -> None:
    for columns in answer.values() if isinstance(answer, Mapping) else ():
        for name, values in columns.items() if isinstance(columns, Mapping) else ():
            if not isinstance(values, np.ndarray | list | Mapping):
                refuse(
                    f"a connector gives column {name!r} as {type(values).__module__}.{type(values).__name__}",
                    "Give a numpy array: the learner makes the backend's tensors of it",
                    line,
                )


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


_OF_A_STEP = frozenset(
    {
        "finite",
        "is_guarded",
        "shape_check",
        "_step_context",
        "weights",
        "part_weights",
        "metrics",
        "ops",
        "module",
        "_update_run",
        "weights_version",
    }
)
"""Attributes of a learner that the core sets in a step, or that are looked at one by one."""
RANDOM = "a random generator of Python or numpy"
_AUTHORS = ("algorithm", "listener")

State = dict[tuple[str, str], Any]
"""`{(whose, name): fingerprint}`."""


class WatchedState:
    """What authors' code could set while a step is traced.

    Args:
        learner: whose plugins, modules and connectors are watched, and the files that they are written in.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._objects = list(self._find_objects())
        self._files = {each.__name__: vars(each) for each in self._find_files()}

    def add(self, names: dict[str, Any]) -> bool:
        """Watch the globals of a function too; returns whether they are new."""
        name = str(names.get("__name__"))
        is_new = name not in self._files
        self._files[name] = names
        return is_new

    def now(self) -> State:
        """Fingerprints of all of it."""
        found: State = {
            (RANDOM, "numpy.random"): _state_of_numpy(),
            (RANDOM, "random"): hash(random.getstate()),
        }
        for whose, each in self._objects:
            for name, value in list(vars(each).items()):
                if not ((each is self._learner and name in _OF_A_STEP) or is_cached(each, name)):
                    found[whose, name] = fingerprint(value)
        for module, names in self._files.items():
            for name, value in list(names.items()):
                if not name.startswith("__"):
                    found[f"module {module}", name] = fingerprint_of_global(value)
        return found

    def _find_objects(self) -> Iterator[tuple[str, Any]]:
        learner = self._learner
        found: list[tuple[str, Any]] = [("the learner", learner)]
        found += [(f"{each}", each.implementation) for each in learner.plugins if each.tier in _AUTHORS]
        for module_id, module in learner.module.items():
            found += [(f"module {module_id!r}", module), (f"the network of {module_id!r}", module.network)]
        found += [("a connector", piece_of(each)) for each in learner.connectors]
        found += [(f"the config of {each!r}", view.view) for each, view in learner.coefficients.items()]
        for whose, each in found:
            if hasattr(each, "__dict__") and not isinstance(each, ModuleType):
                yield whose, each

    def _find_files(self) -> Iterator[ModuleType]:
        """The authors' files that are of one package with the learner, a plugin, a network or a connector."""
        packages = {name.split(".")[0] for name in self._names()}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.split(".")[0] in packages and file and is_authors(file):
                yield module

    def _names(self) -> Iterator[str]:
        for _, each in self._objects:
            yield from (cls.__module__ for cls in type(each).__mro__)
            yield getattr(each, "__module__", None) or ""
        yield from (getattr(each.implementation, "__name__", "") for each in self._learner.plugins)


def _state_of_numpy() -> tuple[bytes, int]:
    state: Any = np.random.get_state(legacy=False)["state"]
    return state["key"].tobytes(), state["pos"]
