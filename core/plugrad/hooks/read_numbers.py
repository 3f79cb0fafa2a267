"""The Python numbers that a step reads, and whether they have changed since: a program has them as constants.

A recorded or compiled step runs Python once. Its functions may read numbers that are no variables: an attribute of a
plugin, a global, a variable of the function around them. While the step is traced, Python says which functions of
authors run (`sys.settrace`). Their code says which names they read, and so where each number lies. Looking there before
each update costs some microseconds.
"""

import contextlib
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any, TypeAlias

import numpy as np
import pluggy

from plugrad.hooks.author_line import in_no_library
from plugrad.hooks.learner_protocol import LearnerProtocol

Names: TypeAlias = frozenset[str] | None
"""The names that a function's code has; None: every name but private ones."""

_NUMBERS = (bool, int, float, complex, str, bytes, type(None), np.generic)
_ABSENT = object()
_SCRIPT = "__main__"
"""The module of a script, and of what is typed at a prompt, which has no file."""
_DEEPEST = 4
_STANDARD, _PLUGGY = (
    os.path.join(os.path.dirname(each.__code__.co_filename), "")
    for each in (contextlib.suppress.__init__, pluggy.PluginManager.__init__)
)
_PACKAGES = (os.path.join(_STANDARD, "site-packages", ""), os.path.join(_STANDARD, "dist-packages", ""))
_MOST_ENTRIES = 200
"""Entries of one dict or list that are looked at."""
_MOST_PLACES = 2_000
_MOST_BYTES = 1 << 12
"""Arrays up to this size are compared."""


class ReadNumbers:
    """Finds the numbers that a learner's steps read while they are traced, and compares them later.

    Numbers are also strings, booleans, None and small arrays, in attributes of objects and classes, in globals, in
    closures, and in dicts and lists that lie there.

    Args:
        learner: whose steps they are.
    """

    def __init__(self, learner: LearnerProtocol) -> None:
        self._learner: Any = learner
        self._ignored: set[Hashable] = set()
        self._places: dict[Hashable, _Place] = {}
        self._entries: list[tuple[Mapping[Any, Any], Any, Any]] = []
        self._others: list[_Place] = []

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """While it lasts, a step is traced: note what its functions read. At the end, keep the present values."""
        learner = self._learner
        views = [each.view for each in learner.coefficients.values()]
        search = _Search(
            in_no_library(learner.plugins, learner.backend_info), [learner, *learner.module.values(), *views]
        )
        before = sys.gettrace(), sys.getprofile()
        # A debugger or a profiler stays; one in C could not be put back. A profiler hears of each return and of each
        # function in C as well, which takes half of the time of a trace of TensorFlow.
        follow, put_back = (sys.settrace, before[0]) if before[0] is None else (sys.setprofile, before[1])
        collects = gc.isenabled()
        gc.disable()  # its callbacks, such as hypothesis's clock, would run within the step and be taken for its own
        if put_back is None:
            follow(search.follow)
        try:
            yield
        finally:
            if put_back is None:
                follow(None)
            if collects:
                gc.enable()
        search.add_closures()
        for each in learner.registered_optimizers.values():
            search.visit(each.optimizer, None, type(each.optimizer).__name__, _DEEPEST)
        for module_id, module in learner.module.items():
            if (
                getattr(module, "network", None) is None
            ):  # a model of a user's, which is made of the framework's layers
                search.visit(module, None, f"module {module_id!r}")
        self._places |= search.places
        search.forget()
        self._keep_values()

    def changes(self) -> dict[Hashable, str]:
        """Which numbers are others than when a step was last traced.

        Returns:
            By place, each in words, such as "coeff of Bonus was 1.0 and is 0.25".
        """
        for owner, name, value in self._entries:
            now = owner.get(name, _ABSENT)
            if now is not value and not _equal(now, value):
                break
        else:
            if all(_equal(each.read(), each.value) for each in self._others):
                return {}
        return {
            key: f"{each.label} was {_text(each.value)} and is {_text(each.read())}"
            for key, each in self._places.items()
            if not _equal(each.read(), each.value)
        }

    def ignore(self, places: Iterable[Hashable]) -> None:
        """Leave out some for good: they turned out to make no difference.

        Args:
            places: of `changes`.
        """
        self._ignored.update(places)
        self._keep_values()

    def _keep_values(self) -> None:
        self._entries, self._others = [], []
        for key in self._ignored & self._places.keys():
            del self._places[key]
        self._drop_objects_of_one_step()
        for each in self._places.values():
            each.value = each.read()
        places = [*self._places.values()]
        self._entries = [(p.owner, p.name, p.value) for p in places if type(p) is _Place]
        self._others = [p for p in places if type(p) is not _Place]

    def _drop_objects_of_one_step(self) -> None:
        """Drop what nobody else has any more: it was made in the step, and would keep the step's tensors alive."""
        held = {
            key: each for key, each in self._places.items() if not isinstance(each.owner, MappingProxyType)
        }
        ours = Counter(id(each.owner) for each in held.values())
        for key, each in held.items():
            if sys.getrefcount(each.owner) - 1 <= ours[id(each.owner)]:
                del self._places[key]


class _Place:
    """Where a number lies: an entry of a dict, of an object's own attributes, of a class, of globals.

    Args:
        owner: the mapping.
        name: of the entry.
        label: what it is called.

    Attributes:
        value: what was there when it was last looked at.
    """

    def __init__(self, owner: Any, name: Any, label: str) -> None:
        self.owner, self.name, self.label = owner, name, label
        self.value: Any = _ABSENT

    def read(self) -> Any:
        """What is there, `_ABSENT` if nothing; of an array its bytes."""
        return self.owner.get(self.name, _ABSENT)


class _Item(_Place):
    """An item of a list, or an array in a mapping."""

    def read(self) -> Any:
        """See `_Place.read`."""
        try:
            value = self.owner[self.name]
        except LookupError:
            return _ABSENT
        if (
            type(value) is not np.ndarray or value.dtype == object
        ):  # other classes of arrays may raise anything
            return value
        return value.tobytes() if value.nbytes <= _MOST_BYTES else id(value)


class _Attribute(_Place):
    """A slot of an object, an attribute that its class has, the content of a closure's cell."""

    def read(self) -> Any:
        """See `_Place.read`."""
        try:
            return getattr(self.owner, self.name)
        except Exception:  # an empty cell, or an attribute that raises whatever it likes
            return _ABSENT


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are the same object, or equal numbers of one type."""
    if one is other:
        return True
    if type(one) is not type(other) or not _is_number(one):
        return False
    return bool(one == other or (one != one and other != other))  # NaN is what it was


def _text(value: Any) -> str:
    return "missing" if value is _ABSENT else f"{value!r:.40}"


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) or (isinstance(value, tuple) and all(map(_is_number, value)))


class _Search:
    """Looks for numbers in what functions of authors can reach.

    Args:
        is_in_no_library: whether a file is outside the learner's libraries.
        known: the learner, its modules and configs: what is looked into though its class is no author's.

    Attributes:
        places: those that were found.
    """

    def __init__(self, is_in_no_library: Callable[[str], bool], known: Iterable[Any]) -> None:
        self.places: dict[Hashable, _Place] = {}
        self._is_in_no_library = is_in_no_library
        self._known = {id(each) for each in known}
        self._names: dict[CodeType, frozenset[str]] = {}
        # By id: the hash of a function's code is made of all its constants.
        self._libraries: dict[int, CodeType] = {}
        self._closures: dict[CodeType, set[str]] = {}
        self._seen: set[tuple[int, Names]] = set()
        self._with_numbers: set[int] = set()
        self._alive: list[Any] = []  # an id must not come again

    def follow(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A function for `sys.settrace`, or for `sys.setprofile`."""
        code = frame.f_code
        if id(code) in self._libraries:  # nearly always
            return None
        names = self._names.get(code)
        if names is None:
            if not self._is_authors(code.co_filename, frame.f_globals.get("__name__")):
                self._libraries[id(code)] = code
                return None
            texts = (each for each in code.co_consts if isinstance(each, str))
            found = (each for each in (*code.co_names, *texts) if not each.startswith("__"))
            names = self._names[code] = frozenset(found)
        if event == "return":  # now it has all its variables
            # Attributes of a stranger's object may raise anything; the step must not know.
            with contextlib.suppress(Exception):
                self._visit_frame(frame, names)
        return self.follow

    def _visit_frame(self, frame: FrameType, names: frozenset[str]) -> None:
        code = frame.f_code
        module = frame.f_globals.get("__name__")
        for name in names & frame.f_globals.keys():
            label = f"{name} of module {module}"
            self._found(frame.f_globals, frame.f_globals, name, label, names, 0)
        for name, value in frame.f_locals.items():
            is_kept = name in code.co_freevars
            if is_kept and (_is_number(value) or self._is_of_no_library(value)):
                self._closures.setdefault(code, set()).add(name)
            # Other dicts and lists are the minibatch and what is made of it, or are reached by another way.
            if is_kept or isinstance(value, ModuleType | type) or self._is_looked_into(value):
                self.visit(value, names, name)

    def _is_authors(self, file: str, module: Any) -> bool:
        if file.startswith("<"):
            return bool(module == _SCRIPT)
        if file.startswith(_PLUGGY) or (file.startswith(_STANDARD) and not file.startswith(_PACKAGES)):
            return False
        return self._is_in_no_library(file)

    def add_closures(self) -> None:
        """Find the functions of which variables around them were read."""
        functions = gc.get_referrers(*self._closures) if self._closures else []
        for function in functions:
            if isinstance(function, FunctionType):
                read = self._closures.get(function.__code__, ())
                cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
                for name, cell in cells:
                    if name in read:
                        label = f"{name} around {function.__qualname__}"
                        self._add((id(cell), name), _Attribute(cell, "cell_contents", label))

    def visit(self, value: Any, names: Names, label: str, depth: int = 0) -> None:
        """Look into an object.

        Args:
            value: the object.
            names: which attributes count.
            label: what it is called.
            depth: how deep it lies in what a function has.
        """
        key = id(value), names
        if depth > _DEEPEST or key in self._seen or len(self.places) > _MOST_PLACES or _is_leaf(value):
            return
        self._seen.add(key)
        self._alive.append(value)
        if type(value) is dict:
            if len(value) <= _MOST_ENTRIES:
                named = [name for name in value if names is not None and name in names]
                for name in named or [*value]:
                    self._found(value, value, name, f"{label}[{name!r}]", names, depth)
        elif isinstance(value, list | tuple):
            for n, each in enumerate(value[:_MOST_ENTRIES]):
                if isinstance(value, list) and (_is_number(each) or isinstance(each, np.ndarray)):
                    self._add((id(value), n), _Item(value, n, f"{label}[{n}]"))
                self.visit(each, names, f"{label}[{n}]", depth + 1)
        else:
            self._visit_attributes(value, names, label, depth)

    def _visit_attributes(self, value: Any, names: Names, label: str, depth: int) -> None:
        own: dict[str, Any] | None = getattr(value, "__dict__", None)
        if not isinstance(own, Mapping):
            own = {}
        of = label if isinstance(value, ModuleType | type) or names is None else type(value).__name__
        if names is None:
            for name, each in list(own.items()):
                # Booleans are modes of layers, which the core sets.
                if not name.startswith("_") and not isinstance(each, bool):
                    self._found(value, own, name, f"{name} of {of}", names, depth)
        else:
            for name in names & own.keys():
                self._found(value, own, name, f"{name} of {of}", names, depth)
            if not isinstance(value, ModuleType):
                for name in names - own.keys():
                    self._visit_attribute_of_class(value, own, name, f"{name} of {of}", names, depth)
        if hasattr(type(value), "__getattr__"):  # it has attributes in others
            for name, each in list(own.items()):
                if name.startswith("_"):
                    self.visit(each, names, label, depth + 1)

    def _visit_attribute_of_class(
        self, value: Any, own: dict[str, Any], name: str, label: str, names: Names, depth: int
    ) -> None:
        classes = (value if isinstance(value, type) else type(value)).__mro__
        cls = next((each for each in classes if name in vars(each)), None)
        if cls is None:
            return
        found = vars(cls)[name]
        if isinstance(found, MemberDescriptorType):
            with contextlib.suppress(AttributeError):
                if _is_number(getattr(value, name)):
                    self._add((id(value), name), _Attribute(value, name, label))
        elif not hasattr(type(found), "__get__"):
            num_places = len(self.places)
            self._found(cls, vars(cls), name, label, names, depth)
            if len(self.places) > num_places and value is not cls:
                self._add((id(value), name), _Attribute(value, name, label))  # may hide that of the class

    def _found(
        self, holder: Any, entries: Mapping[Any, Any], name: Any, label: str, names: Names, depth: int
    ) -> None:
        value = entries[name]
        if _is_number(value):
            self._add((id(holder), name), _Place(entries, name, label))
        elif isinstance(value, np.ndarray):
            self._add((id(holder), name), _Item(entries, name, label))
        else:
            num_places = len(self.places)
            self.visit(value, names, label, depth + 1)
            if len(self.places) > num_places:
                self._with_numbers.add(id(value))
            if id(value) in self._with_numbers and self._is_of_no_library(value):
                # Another object in its place would have other numbers.
                self._add((id(holder), name), _Place(entries, name, label))

    def _is_looked_into(self, value: Any) -> bool:
        """Whether an object is the learner's or of an author's class."""
        is_own = id(value) in self._known or self._is_authors(_file_of(type(value)), type(value).__module__)
        return is_own and not _is_leaf(value)

    def _is_of_no_library(self, value: Any) -> bool:
        """Whether an object is of an author's class or of one of Python's: a dict, a list, a namespace."""
        return type(value) in (dict, list) or self._is_in_no_library(_file_of(type(value)))

    def forget(self) -> None:
        """Let go of all objects but those of the places."""
        self._alive.clear()
        self.places = {}

    def _add(self, key: Hashable, place: _Place) -> None:
        self.places.setdefault(key, place)


def _file_of(cls: type[Any]) -> str:
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or "<none>"


def _is_leaf(value: Any) -> bool:
    """Whether nothing is looked for in a value: a number, an array, a tensor of whichever framework."""
    return isinstance(value, (*_NUMBERS, np.ndarray)) or (
        hasattr(type(value), "shape") and hasattr(type(value), "dtype")
    )
