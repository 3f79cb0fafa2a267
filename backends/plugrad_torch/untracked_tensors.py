"""Tensors that a learner and its modules keep beside their state: tracing puts them back; no program changes them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.batch import Rows
from plugrad.types import ModuleBatches
from plugrad_torch.inductor import NotCompiled

_NOTHING = object()
_STATE = ("_parameters", "_modules")
"""Attributes of a module that are not looked into: parameters are variables, and each layer is looked at by itself."""


class Traced(Protocol):
    """What a trace gives."""

    def buffers(self) -> Iterator[Tensor]:
        """The tensors in it that are constants."""


T = TypeVar("T", bound=Traced)


class _Keeper:
    """The tensors of one dict or list, as they were before tracing.

    Args:
        name: of the values' owner, such as "Net" or "Net.cache".
        values: the dict or list.
    """

    def __init__(self, name: str, values: dict[Any, Any] | list[Any]) -> None:
        self._name, self._values, self._former = name, values, _entries(values)
        kept = {key: each for key, each in self._former.items() if isinstance(each, Tensor)}
        self._copies = {
            key: (each, each._version, each.detach().clone())
            for key, each in kept.items()
            if not each.is_inference()
        }

    def put_back(self) -> list[tuple[str, Tensor, bool]]:
        """Undo what tracing did.

        Returns:
            Name, the tensor, and whether it was changed in place, of each that tracing changed.
        """
        now = _entries(self._values)
        differing = [key for key in {**self._former, **now} if self._differs(key, now)]
        if differing and isinstance(self._values, list):
            self._values[:] = self._former.values()
            differing = [*self._former]  # another length is a change of the whole
        elif isinstance(self._values, dict):
            for key in differing:
                if key in self._former:
                    self._values[key] = self._former[key]
                else:
                    del self._values[key]
        olds = [(key, self._former.get(key)) for key in differing]
        changed = [(self._full_name(key), old, False) for key, old in olds if isinstance(old, Tensor)]
        for key, (tensor, version, copy) in self._copies.items():
            tensor.data.copy_(copy)  # always: a change that raises is not counted in the version
            if tensor._version != version:
                changed.append((self._full_name(key), tensor, True))
        return changed

    def _differs(self, key: Any, now: dict[Any, Any]) -> bool:
        old, new = self._former.get(key, _NOTHING), now.get(key, _NOTHING)
        return old is not new and (isinstance(old, Tensor) or isinstance(new, Tensor))

    def _full_name(self, key: Any) -> str:
        return f"{self._name}.{key}" if isinstance(key, str) else f"{self._name}[{key!r}]"


def _entries(values: dict[Any, Any] | list[Any]) -> dict[Any, Any]:
    return dict(enumerate(values)) if isinstance(values, list) else dict(values)


def _keepers(name: str, values: dict[Any, Any] | list[Any], seen: set[int]) -> Iterator[_Keeper]:
    """A keeper of this dict or list, and of those in it."""
    if id(values) in seen:
        return
    seen.add(id(values))
    yield (keeper := _Keeper(name, values))
    for key, each in _entries(values).items():
        if isinstance(each, dict | list) and key not in _STATE:
            inner = name if key == "_buffers" else keeper._full_name(key)
            yield from _keepers(inner, each, seen)


def trace_beside(learner: LearnerProtocol, minibatch: ModuleBatches, trace: Callable[[], T]) -> T:
    """Trace a step of a learner, whose tensors beside its state are afterwards what they were.

    The modules are called once before. So a tensor that a model makes at its first call and keeps, such as a mask or a
    table, is a constant of the program, and one that each call changes is found.

    Args:
        learner: whose modules may keep tensors as attributes, in dicts and lists, or as buffers that are not in their
            `state_dict`.
        minibatch: what the step is traced for.
        trace: traces the step.

    Returns:
        What `trace` gives.

    Raises:
        NotCompiled: the step reads such a tensor and changes it, which a program would not.
    """
    before = _keepers_of(learner)
    try:
        _call_modules(learner, minibatch)
        keepers = _keepers_of(learner)
        try:
            graph = trace()
        finally:
            changed = [each for keeper in keepers for each in keeper.put_back()]
    finally:
        for keeper in before:
            keeper.put_back()
    constants = {id(each) for each in graph.buffers()}
    for name, tensor, is_in_place in changed:
        if is_in_place or id(tensor) in constants:
            raise NotCompiled(
                f"a step changes the tensor {name}, which is not in a state_dict: a module's register_buffer puts it "
                "there"
            )
    return graph


@contextmanager
def put_back(learner: LearnerProtocol) -> Iterator[None]:
    """Afterwards a learner's tensors beside its state are what they were before.

    Args:
        learner: see `trace_beside`.
    """
    keepers = _keepers_of(learner)
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.put_back()


def _keepers_of(learner: LearnerProtocol) -> list[_Keeper]:
    models: list[Any] = [each for each in learner.module.values() if isinstance(each, torch.nn.Module)]
    seen: set[int] = set()
    return [
        keeper
        for owner in (learner, *(layer for model in models for layer in model.modules()))
        for keeper in _keepers(type(owner).__name__, vars(owner), seen)
    ]


def _call_modules(learner: LearnerProtocol, minibatch: ModuleBatches) -> None:
    """Forward passes without effects on weights and random numbers; an error is left to the trace, which has it too."""
    on_gpu = [learner.device] if torch.device(learner.device).type == "cuda" else []
    models = [each for each in learner.module.values() if isinstance(each, torch.nn.Module)]
    with torch.no_grad(), torch.random.fork_rng(on_gpu):
        weights = [(each, each.clone()) for model in models for each in model.parameters()]
        for module_id, columns in minibatch.items():
            with suppress(Exception):
                learner.module[module_id].forward_train(Rows(module_id, columns, lambda column: column))
        for param, before in weights:  # a forward pass may change them by `param.data`
            param.data.copy_(before)
