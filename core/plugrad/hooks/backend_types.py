"""What a backend gives the core: who it is, the programs of its updates, the operations that it saw."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from plugrad.errors import PluginError, did_you_mean
from plugrad.types import ModuleBatches, ModuleID, Tensor

log = logging.getLogger("plugrad")


class Capability(StrEnum):
    """Declared in `BackendInfo.capabilities`; `plugrad.testing.backend_suite` proves each that is.

    A member equals its string: `"xla" in info.capabilities`. `Capability(name)` takes either, and the name in lower
    case.

    Raises:
        PluginError: a capability is unknown; the message names the closest.
    """

    COMPLETE_UPDATE = "complete_update"
    """`compile="complete_update"` makes one program of an update, or of each of its steps: every op, gradient and step
    gives in it what it gives eagerly."""

    EXACT_KINKS = "exact_kinks"
    """Gradients at kinks and ties (of `abs`, `relu`, `maximum`, `clip`, ...) are those that `plugrad.ops` says."""

    FUSED_STEP = "fused_step"
    """The backend steps optimizers in an `apply_gradients` of its own, to the same numbers as the core's."""

    FRAMEWORK_OPTIMIZERS = "native_optimizers"
    """`register_optimizer` takes the framework's own optimizers: `wrap_optimizer` makes a
    `plugrad.optimizers.Optimizer` of one, and their learning rate can be read and set without a new trace."""

    ONNX = "onnx"
    """`export_onnx` writes models that `wrap_module` takes, and modules of the backend, as ONNX models."""

    USER_MODULES = "user_modules"
    """`wrap_module` takes models of the framework that are no `RLModule`. What they keep beside parameters is in
    `get_buffers`: saved, restored and undone with them. They are trained and act in the modes of their layers."""

    XLA = "xla"
    """`compile="auto"` and `"complete_update"` compile by XLA; `learner.update_mode` says so, and says when XLA
    refuses."""

    @classmethod
    def _missing_(cls, value: object) -> "Capability":
        name = str(value)
        if name.upper() in cls.__members__:
            return cls[name.upper()]
        hint = did_you_mean(name, [*map(str, cls), *map(str.lower, cls.__members__)])
        raise PluginError(f"no capability {name!r}: there are {', '.join(cls)}.{hint}")


@dataclass(frozen=True)
class BackendInfo:
    """What a backend says of itself.

    Args:
        name: the entry point's name.
        version: version of the framework.
        devices: devices that it sees, such as `("cpu", "cuda:0")`.
        capabilities: what it can do beyond the required hooks: members of `Capability`, or their strings.

    Raises:
        PluginError: a capability is unknown.
    """

    name: str
    version: str
    devices: tuple[str, ...] = ("cpu",)
    capabilities: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "capabilities", frozenset(map(Capability, self.capabilities)))


Shape = tuple[int | None, ...]
Forward = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""A forward pass: `{column: tensor}` to `{column: tensor}`."""
Step = Callable[[ModuleBatches], dict[str, Tensor]]
"""The core's step: it trains on a minibatch and returns `{metric name: float32 scalar tensor}`."""


class Operation(NamedTuple):
    """An operation on tensors, as `watch_operations` saw it.

    Args:
        name: as the framework calls it.
        inputs: shapes of the tensors that went in; None where a traced program does not know a size.
        outputs: shapes of those that came out.
        lines: where in Python it was asked for, `(file, line)`, innermost first.
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

    def fall_back(self, mode: str, reason: str) -> None:
        """Say what runs from now on, and log it as a warning.

        Args:
            mode: as in the constructor.
            reason: why not the mode of before.
        """
        self.mode, self.reason = mode, reason
        log.warning("update mode %s: %s", mode, reason)

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
