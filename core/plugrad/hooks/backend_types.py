"""What a backend gives the core: who it is, the programs of its updates, the operations that it saw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from plugrad.types import ModuleBatches, ModuleID, Tensor


@dataclass(frozen=True)
class BackendInfo:
    """What a backend says of itself.

    Args:
        name: the entry point's name.
        version: version of the framework.
        devices: devices that it sees, such as `("cpu", "cuda:0")`.
        capabilities: what it can do beyond the required hooks; `plugrad.testing.backend_suite` proves what is declared
            and leaves out what is not: `"complete_update"` (the whole update, or each step, as one traced program),
            `"exact_kinks"` (gradients at kinks are those of `plugrad.ops`), `"fused_step"` (an `apply_gradients` of its
            own), `"native_optimizers"` (the framework's own may be registered), `"user_modules"` (`wrap_module` takes
            models, which keep what `get_buffers` says, and are trained and act in their modes), `"xla"`.
    """

    name: str
    version: str
    devices: tuple[str, ...] = ("cpu",)
    capabilities: frozenset[str] = field(default_factory=frozenset)


Shape = tuple[int | None, ...]


class Operation(NamedTuple):
    """An operation on tensors, as `watch_operations` saw it.

    Args:
        name: as the framework calls it.
        inputs: shapes of the tensors that went in; None where a traced program does not know a size.
        outputs: shapes of those that came out.
        lines: where in Python it was asked for, `(file, line)`, base_implementations first.
    """

    name: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    lines: Sequence[tuple[str, int]]


class Program:
    """An update, ready to run. A backend derives from it.

    Args:
        mode: `"none"`, `"forward_train"` or `"complete_update"`: what really runs.
        reason: why this mode and no other, in words for `learner.update_mode`.
        static_shapes: whether new shapes mean a new compilation; the core then pads rows to powers of two.
        static_minibatches: whether a new size of the minibatches does; the core then keeps those of sequences, whose
            number follows from the data, at powers of two.
    """

    def __init__(
        self, mode: str, reason: str, *, static_shapes: bool = False, static_minibatches: bool = False
    ) -> None:
        self.mode = mode
        self.reason = reason
        self.static_shapes = static_shapes
        self.static_minibatches = static_minibatches or static_shapes

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Tensor]:
        """Run `num_steps` minibatches; may change `mode` and `reason`, if it has to fall back.

        Args:
            columns: `{module_id: {column: tensor [rows, ...]}}`.
            indices: `{module_id: int32 [num_steps, minibatch size]}`, rows of each minibatch; with `static_shapes`
                both may have more rows than count.
            num_steps: how many minibatches.

        Returns:
            `{metric name: float32 scalar tensor}`, means over the minibatches.
        """
        raise NotImplementedError
