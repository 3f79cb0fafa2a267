"""The operations of torch code while it runs, below autograd: also while it is traced, on tracers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from plugrad.hooks.backend_helpers import calling_lines
from plugrad.hooks.backend_spec import Operation, Shape


@contextmanager
def watch_operations() -> Iterator[list[Operation]]:
    """Every operation of the block, in order. What `torch.compile` made of a user's model runs eagerly meanwhile."""
    has_dynamo = "torch._dynamo" in sys.modules  # else nothing is compiled, and importing it takes 0.7 s
    with torch.compiler.set_stance("force_eager") if has_dynamo else nullcontext(), _Recorder() as watch:
        yield watch.operations


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: skipping it imports all of it, 0.7 s at the first use, and what is compiled beneath works without."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        inputs = _shapes((args, kwargs))
        self.operations.append(
            Operation(func.overloadpacket.__name__, inputs, _shapes(answer), calling_lines())
        )
        return answer


def _shapes(tree: Any) -> tuple[Shape, ...]:
    return tuple(tuple(leaf.shape) for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
