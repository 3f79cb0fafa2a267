"""The operations of torch code while it runs, below autograd: also while it is traced, on tracers."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from threading import Lock
from typing import Any

import torch

from plugrad.hooks.backend_helpers import calling_lines
from plugrad.hooks.backend_spec import Operation, Shape
from plugrad.hooks.markers import hookimpl
from plugrad_torch import versions

TorchDispatchMode: Any = versions.DISPATCH_MODE.find() or object
tree_leaves: Any = versions.TREE_LEAVES.find()


@hookimpl
def watch_operations() -> AbstractContextManager[list[Operation]] | None:
    """Every operation of a block, in order; None where this torch cannot show them.

    What `torch.compile` made of a user's model runs eagerly meanwhile.
    """
    return None if any(each.find() is None for each in versions.WATCHING) else _watched()


@contextmanager
def _watched() -> Iterator[list[Operation]]:
    has_dynamo = "torch._dynamo" in sys.modules  # else nothing is compiled, and importing it takes 0.7 s
    with _nothing_compiled if has_dynamo else nullcontext(), _Recorder() as watch:
        yield watch.operations


class _NothingCompiled:
    """While any thread is inside, what `torch.compile` made runs eagerly.

    Torch has one stance for all threads of a process. If each thread put back what it had found, one that came while
    another was inside would leave the process eager.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._stance = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._stance.enter_context(torch.compiler.set_stance("force_eager"))
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stance.close()


_nothing_compiled = _NothingCompiled()


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: skipping it imports all of it, 0.7 s at the first use, and what is compiled beneath works without."""
        return False

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Yes: torch notes in one flag for all threads that another mode is active, and the last of two that overlap
        would leave that flag set, and nothing of the process compiled from then on.
        """
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        inputs = _shapes((args, kwargs))
        self.operations.append(
            Operation(func.overloadpacket.__name__, inputs, _shapes(answer), calling_lines())
        )
        return answer


def _shapes(tree: Any) -> tuple[Shape, ...]:
    return tuple(tuple(leaf.shape) for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
