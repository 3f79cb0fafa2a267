"""What a backend gives the core: its description, the programs of updates, recorded operations."""

import logging
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from plugrad.config import Config
from plugrad.contract import CONTRACT_VERSION, OLDEST_CONTRACT
from plugrad.errors import PluginError, did_you_mean
from plugrad.ops import Ops
from plugrad.types import ModuleBatches, ModuleID, Tensor

log = logging.getLogger("plugrad")


class Capability(StrEnum):
    """Declared in `BackendInfo.capabilities`; `plugrad.testing.backend_suite` tests each declared one.

    A member equals its string: `"xla" in info.capabilities`. `Capability(name)` takes either, and the name in lower
    case. The number after the string is the version of the contract that added it, if that is not 1.

    Attributes:
        since: the version of the contract that added it.

    Raises:
        PluginError: a capability is unknown; the message names the closest.
    """

    since: int

    def __new__(cls, text: str, since: int = 1) -> Self:
        """A member: its string, and the version of the contract that added it."""
        member = str.__new__(cls, text)
        member._value_, member.since = text, since
        return member

    BATCHED_LEARNERS = "batched_learners", 2
    """`batch_program` combines the updates of many learners that differ only in seed, learning rates and coefficients
    into one program. Each computes the same as it would alone, within rounding."""

    BFLOAT16 = "bfloat16", 2
    """Ops compute in bfloat16, and `cast` converts to and from it, also where a gradient is taken. So modules of the
    backend and users' models compute forward and backward passes in it with `precision="bf16"`."""

    CHANGED_LOSSES = "changed_losses", 2
    """`compute_gradients` also differentiates losses that a caller changed after `compute_losses`, such as
    `{module_id: 2 * loss}`. Without it this is a `LossError`, which says to change the loss where it is computed."""

    COMPLETE_UPDATE = "complete_update"
    """`compile="complete_update"` compiles an update, or each of its steps, as one program: every op, gradient and step
    gives the same result as eagerly."""

    EXACT_KINKS = "exact_kinks"
    """Gradients at kinks and ties (of `abs`, `relu`, `maximum`, `clip`, ...) are as `plugrad.ops` defines them."""

    FLOAT64 = "float64", 2
    """Ops keep float64, `asarray` and `cast` can make it, and gradients may be taken in it. Training uses float32
    everywhere; a backend without this capability computes in float32 throughout."""

    FUSED_STEP = "fused_step"
    """The backend steps optimizers in its own `apply_gradients`, with the same results as the core's."""

    FRAMEWORK_OPTIMIZERS = "native_optimizers"
    """`register_optimizer` takes the framework's own optimizers: `wrap_optimizer` wraps one as a
    `plugrad.optimizers.Optimizer`, and its learning rate can be read and set without a new trace."""

    ONNX = "onnx"
    """`export_onnx` writes models that `wrap_module` takes, and modules of the backend, as ONNX models."""

    SECOND_DERIVATIVES = "second_derivatives", 2
    """`learner.jvp` and `learner.hvp` give a scalar's derivative along a vector, and its Hessian times a vector, by the
    parameters of any module of the backend."""

    USER_MODULES = "user_modules"
    """`wrap_module` takes models of the framework that are not `RLModule`s. What they keep besides parameters is in
    `get_buffers`, and is saved, restored and undone with them. Their layers train and act in the right mode."""

    XLA = "xla"
    """`compile="auto"` and `"complete_update"` compile with XLA; `learner.update_mode` says so, or that XLA refused."""

    @classmethod
    def _missing_(cls, value: object) -> "Capability":
        name = str(value)
        if name.upper() in cls.__members__:
            return cls[name.upper()]
        hint = did_you_mean(name, [*map(str, cls), *map(str.lower, cls.__members__)])
        raise PluginError(f"no capability {name!r}: there are {', '.join(cls)}.{hint}")


Condition = Callable[[Ops, Config], bool | str]
"""`condition(ops, config)`: True if a capability is available, else why not: `has_compiler() or "no compiler"`."""


@dataclass(frozen=True)
class BackendInfo:
    """The description of a backend.

    Args:
        name: the entry point's name.
        version: version of the framework.
        devices: devices that it sees, such as `("cpu", "cuda:0")`.
        capabilities: what it can do beyond the required hooks: members of `Capability`, or their strings. In a mapping
            `{capability: condition}` the condition is True, or a `Condition` if the capability is not available on
            every device or with every config.
        packages: packages that belong to the framework in addition to the distributions that the backend requires, such
            as `("keras",)`. Errors never point to lines in them.
        contract_version: the `plugrad.CONTRACT_VERSION` that it was written for.
        device_aliases: `{other name: device}`, such as `{"gpu": "cuda:0"}`: what users of the framework also type.
        device_groups: `{device: name of the group of all devices of its kind}`, such as `{"cpu:0": "cpu:0-7"}`: with
            `sharding="fsdp"` a learner's device is such a group. A device alone has none. None: the backend does not
            shard.
        divide: `divide(learner, rank, size, connected)` divides what a learner keeps between updates, its parameters,
            slots of optimizers and target networks, over the processes of a launcher: with `sharding="fsdp"` it is
            called when they have found each other and after each update. It exchanges nothing. `connected()` gives the
            collective by which a vector is put together when all processes read it. The variables have
            `is_divided = True`: they are no part of the hash by which learners are compared. None: the backend does not
            shard a learner over processes.
        host_devices: those of `devices` that compute in the host's memory. Batches for them are made in numpy, which
            reads their tensors without a copy.
        computing_on: gives for a name of `devices` a context manager, such as `tf.device`: in it, operations compute
            there that the core does by themselves, between programs. The learner's public methods run in it. None:
            operations compute where their tensors are.
        compile_function: makes one program of a function of tensors, such as `jax.jit`, where the backend's operations
            are slow to call one by one: the core compiles short functions so that it calls at every step of an
            environment. None: they are called as they are.
        module_class: the class of modules that users derive theirs from, such as `TorchRLModule`. With it the parts of
            a plain model become a module of an algorithm with critics (`Config.model_class`); None: such a model is
            refused.
        write_rows: `write_rows(columns, places, rows)` writes rows into the columns of a replay buffer on a device, in
            place where the framework can: `{name: [capacity, ...]}`, int64 `[N]` and `{name: [N, ...]}`, tensors. It
            returns the columns, which `Ops.take` reads; those that it was given are not used again. Where a place is
            there twice, either row may stay. None: each call makes new columns, by ops.
        free_memory: gives for a name of `devices` how many bytes of its memory are free; None for one in the host's
            memory, and where the framework does not say. None: the framework says it of no device.

    Attributes:
        conditions: those of `capabilities` that are not simply True.

    Raises:
        PluginError: a capability is unknown, or plugrad does not have that version of the contract.
    """

    name: str
    version: str
    devices: tuple[str, ...] = ("cpu",)
    capabilities: Collection[str] | Mapping[str, Condition | bool] = frozenset()
    packages: Collection[str] = ()
    contract_version: int = 1
    device_aliases: Mapping[str, str] = field(default_factory=dict)
    device_groups: Mapping[str, str] | None = None
    divide: Callable[..., None] | None = None
    host_devices: Collection[str] = ("cpu",)
    computing_on: Callable[[str], AbstractContextManager[None]] | None = None
    compile_function: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    module_class: Any = None
    write_rows: Callable[..., Mapping[str, Tensor]] | None = None
    free_memory: Callable[[str], int | None] | None = None
    conditions: Mapping[Capability, Condition] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        declared: Mapping[str, Any] = (
            self.capabilities
            if isinstance(self.capabilities, Mapping)
            else dict.fromkeys(self.capabilities, True)
        )
        given = {
            Capability(name): condition for name, condition in declared.items() if condition is not False
        }
        object.__setattr__(self, "capabilities", frozenset(given))
        conditions = {each: condition for each, condition in given.items() if condition is not True}
        object.__setattr__(self, "conditions", conditions)
        self._check_contract()

    def _check_contract(self) -> None:
        version = self.contract_version
        if OLDEST_CONTRACT <= version <= CONTRACT_VERSION:
            return
        wanted = "plugrad" if version > CONTRACT_VERSION else f"backend {self.name!r}"
        raise PluginError(
            f"backend {self.name!r} is written for version {version} of the contract, and this plugrad has "
            f"{OLDEST_CONTRACT} to {CONTRACT_VERSION}: install a newer version of {wanted}"
        )

    def why_not(self, capability: Capability | str, ops: Ops, config: Config) -> str:
        """Why a learner does not have a capability.

        Args:
            capability: a member, or its string.
            ops: the learner's ops.
            config: the learner's config.

        Returns:
            The reason in words; "" if it has it.
        """
        asked = Capability(capability)
        if asked not in self.capabilities:
            return f"backend {self.name!r} does not declare {str(asked)!r}"
        answer = self.conditions[asked](ops, config) if asked in self.conditions else True
        if answer and not isinstance(answer, str):
            return ""
        return f"backend {self.name!r} has no {str(asked)!r} here: {answer or 'it does not say why'}"


Shape = tuple[int | None, ...]
Forward = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""A forward pass: `{column: tensor}` to `{column: tensor}`."""
Step = Callable[..., dict[str, Tensor]]
"""The core's step, `step(minibatch, context=StepContext())`: trains on a minibatch; returns `{metric name: scalar}`."""


@dataclass(frozen=True)
class StepContext:
    """How a backend runs the parts of a step, such as compiled on their own. By default the core calls them.

    Args:
        differentiate: `differentiate(part)` returns `part()`: losses, outputs of the forward passes and gradients.
        finish: `finish(part)` returns `part()`: all that comes after the exchange of gradients; the step's metrics.
        forward_train: `forward_train(module_id, part, batch, **kwargs)` returns `part(batch, **kwargs)`: what the
            `forward_train` of a module computes; None: the core calls it.
        try_out: `try_out(part)` calls `part()`, in which losses are computed for the shapes of their tensors alone.
    """

    differentiate: Callable[[Callable[[], Any]], Any] = operator.call
    finish: Callable[[Callable[[], Any]], Any] = operator.call
    forward_train: Callable[..., dict[str, Tensor]] | None = None
    try_out: Callable[[Callable[[], Any]], Any] = operator.call


class Operation(NamedTuple):
    """An operation on tensors, as recorded by `watch_operations`.

    Args:
        name: the framework's name for it.
        inputs: shapes of the input tensors; None where a traced program does not know a size.
        outputs: shapes of the output tensors.
        lines: the Python lines that called it, `(file, line)`, innermost first.
    """

    name: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    lines: Sequence[tuple[str, int]]


class Program:
    """An update, ready to run. A backend derives from it.

    Args:
        mode: `"none"`, `"forward_train"` or `"complete_update"`: what actually runs.
        reason: why this mode, in words for `learner.update_mode`.
        static_shapes: whether new shapes need a new compilation; the core then pads rows to powers of two.
        static_minibatches: whether a new minibatch size needs one; the core then pads minibatches of sequences, whose
            size depends on the data, to powers of two.

    Attributes:
        together: how it last ran as a part of a `BatchedProgram`, in words; set by the core.
        takes_arrays: whether `run` converts columns and indices itself, faster than `convert_batch_type`. It then gets
            numpy arrays, unless a class or a plugin changes the result of that hook. Only with `static_shapes`.
        keeps_numbers: whether the step is called only while it is traced. Python numbers that it reads are then
            constants of what was traced: the core compares them before each update, and if one has changed, it asks for
            another program.
        is_slow_to_make: whether making a program takes as long as many eager updates. Where numbers keep changing, the
            core then asks for the mode `"none"`.
    """

    together: str = ""
    takes_arrays: bool = False
    keeps_numbers: bool = False
    is_slow_to_make: bool = False

    def __init__(
        self, mode: str, reason: str, *, static_shapes: bool = False, static_minibatches: bool = False
    ) -> None:
        self.mode = mode
        self.reason = reason
        self.static_shapes = static_shapes
        self.static_minibatches = static_minibatches or static_shapes

    def fall_back(self, mode: str, reason: str) -> None:
        """Set what runs from now on, and log it as a warning.

        Args:
            mode: as in the constructor.
            reason: why the previous mode cannot be used.
        """
        self.mode, self.reason = mode, reason
        log.warning("update mode %s: %s", mode, reason)

    def begin_update(self) -> None:
        """Prepare for an update, before its minibatches are made; may change everything that the constructor sets.

        Default: nothing. A program that is compiled only after some time decides this here, from numbers that are saved
        with the learner, such as `learner.counters`. Then a resumed run switches at the same step as an uninterrupted
        one.
        """

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Tensor]:
        """Run `num_steps` minibatches; may change `mode` and `reason` if it has to fall back.

        Args:
            columns: `{module_id: {column: tensor [rows, ...]}}`, from `convert_batch_type`. Ids that begin with a line
                feed are the core's own; treat their columns and indices like the others.
            indices: `{module_id: int32 tensor [num_steps, minibatch size]}`, from `convert_batch_type`: the rows of
                each minibatch. With `static_shapes` columns and indices may have padding rows; padding indices are
                valid row numbers.
            num_steps: how many minibatches, a Python int.

        Returns:
            `{metric name: float32 scalar}`, means over the minibatches, as tensors or arrays.
        """
        raise NotImplementedError


class ProgramCall(NamedTuple):
    """One learner's part in a run of a `BatchedProgram`.

    Args:
        program: the learner's program.
        columns: see `Program.run`.
        indices: see `Program.run`.
    """

    program: Program
    columns: ModuleBatches
    indices: Mapping[ModuleID, Tensor]


class BatchedProgram:
    """The programs of many learners as one. This class runs them one after another; a backend derives from it.

    Attributes:
        reason: what actually runs and why, in words for `learner.update_mode`.
    """

    reason: str = "the learners one after another"

    def run(self, calls: Sequence[ProgramCall], num_steps: int) -> Sequence[Mapping[str, Tensor]]:
        """Run the same number of minibatches of each learner.

        Args:
            calls: calls of programs that `compile_update` made from equal steps; columns and indices have equal shapes.
                To pad a batch to a fixed size, the last call may be repeated: its program changes its learner once.
            num_steps: minibatches of each learner.

        Returns:
            What `Program.run` returns, for each call.
        """
        found: dict[Program, Mapping[str, Tensor]] = {}
        for each in calls:
            if each.program not in found:
                found[each.program] = each.program.run(each.columns, each.indices, num_steps)
        return [found[each.program] for each in calls]
