"""Tensors that a learner and its modules keep beside their state: tracing puts them back; no program changes them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from plugrad import LearnerProtocol
from plugrad_torch.inductor import NotCompiled

_NOTHING = object()


class _Keeper:
    """The attributes of an object, or the buffers of a module, as they were before tracing."""

    def __init__(self, owner: Any, values: dict[str, Any]) -> None:
        self._owner, self._values, self._former = type(owner).__name__, values, dict(values)
        kept = {name: each for name, each in values.items() if isinstance(each, Tensor)}
        self._copies = {
            name: (each, each._version, each.detach().clone())
            for name, each in kept.items()
            if not each.is_inference()
        }

    def put_back(self) -> list[tuple[str, str, Tensor, bool]]:
        """Undo what tracing did.

        Returns:
            Name, owner, the tensor, and whether it was changed in place, of each that tracing changed.
        """
        changed = []
        for name in {*self._former, *self._values}:
            old, new = self._former.get(name, _NOTHING), self._values.get(name, _NOTHING)
            if old is new or not (isinstance(old, Tensor) or isinstance(new, Tensor)):
                continue
            if isinstance(old, Tensor):
                changed.append((name, self._owner, old, False))
            if old is _NOTHING:
                del self._values[name]
            else:
                self._values[name] = old
        for name, (tensor, version, copy) in self._copies.items():
            tensor.data.copy_(copy)  # always: a change that raises is not counted in the version
            if tensor._version != version:
                changed.append((name, self._owner, tensor, True))
        return changed


def trace_beside(learner: LearnerProtocol, trace: Callable[[], GraphModule]) -> GraphModule:
    """Trace a step of a learner, whose tensors beside its state are afterwards what they were.

    Args:
        learner: whose modules may keep tensors as attributes, or as buffers that are not in their `state_dict`.
        trace: traces the step.

    Returns:
        The graph.

    Raises:
        NotCompiled: the step reads such a tensor and changes it, which a program would not.
    """
    models: list[Any] = [each for each in learner.module.values() if isinstance(each, torch.nn.Module)]
    layers = [layer for model in models for layer in model.modules()]
    keepers = [_Keeper(each, vars(each)) for each in (learner, *layers)]
    keepers += [_Keeper(each, each._buffers) for each in layers]
    try:
        graph = trace()
    finally:
        changed = [each for keeper in keepers for each in keeper.put_back()]
    constants = {id(each) for each in graph.buffers()}
    for name, owner, tensor, is_in_place in changed:
        if is_in_place or id(tensor) in constants:
            raise NotCompiled(
                f"a step changes the tensor {name!r} of {owner}, which is not in a state_dict: a module's "
                f"register_buffer({name!r}, ...) puts it there"
            )
    return graph
