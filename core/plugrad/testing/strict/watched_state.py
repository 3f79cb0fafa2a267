"""The Python state that a traced step must leave alone: of the learner, its plugins, modules, connectors and files."""

import random
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from plugrad.learner import Learner
from plugrad.testing.strict.connectors import piece_of
from plugrad.testing.strict.fingerprints import fingerprint, fingerprint_of_global, is_cached
from plugrad.testing.strict.refusal import is_authors

_OF_A_STEP = frozenset(
    {
        "finite",
        "shape_check",
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
