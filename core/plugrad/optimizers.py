"""The optimizers of plugrad: one formula each, over ops and flat vectors, so that all backends agree.

An optimizer is a pure function, `compute`, and the variables that it gets when it is registered: the flat parameters,
the slots and the learning rate. A delayed one steps only in every n-th gradient step. Formulas are those of
torch.optim; Keras' Adam differs. Backends wrap optimizers of their framework in the same interface.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import log
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from plugrad.deprecation import unknown_attribute
from plugrad.errors import ConfigError, did_you_mean
from plugrad.gradients import FlatVariable
from plugrad.ops import Ops, Variable
from plugrad.types import Tensor

__all__ = [
    "OPTIMIZERS",
    "SCALAR_SLOTS",
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "RMSprop",
    "Slots",
    "make_optimizer",
]

Slots = dict[str, Tensor]
"""The values of an optimizer's slots: `{slot name: tensor}`."""
SCALAR_SLOTS = frozenset({"count"})
"""The slots that are one number for all parameters; other slots have one entry per entry of a parameter."""
Guard = Callable[[Tensor, Tensor], Tensor]
"""`guard(new, old)` gives the value to keep after a step."""
STEPS_SINCE = "gradient_steps_since"
"""Key in states: gradient steps since the last one that was due."""


@dataclass(eq=False, kw_only=True)
class Optimizer:
    """The base class of optimizers: hyperparameters, and after registration also variables.

    For your own optimizer, derive from it and write `compute`; it then runs on every backend.

    Attributes:
        slot_names: names of the slots, the state that `compute` keeps from step to step; set by the subclass.
        parameters: the flat parameters that it changes, float32 [size].
        slots: `{slot name: variable}`: float32 [size], or a scalar for `SCALAR_SLOTS`.
        lr: the learning rate, a float32 scalar.
    """

    slot_names: ClassVar[tuple[str, ...]] = ()

    parameters: FlatVariable = field(init=False, repr=False)
    slots: dict[str, Variable] = field(init=False, repr=False, default_factory=dict)
    lr: Variable = field(init=False, repr=False)

    if not TYPE_CHECKING:  # a type checker refuses attributes that do not exist

        def __getattr__(self, name: str) -> Any:
            return unknown_attribute(self, "Optimizer", name)

    @property
    def is_bound(self) -> bool:
        """Whether the optimizer was registered with a learner."""
        return hasattr(self, "parameters")

    @property
    def variables(self) -> list[Variable]:
        """All variables that a step reads or changes."""
        return [self.parameters, *self.slots.values(), self.lr]

    def bind(
        self, parameters: FlatVariable, variable: Callable[[Any], Variable], zeros: Callable[[int], Any]
    ) -> None:
        """Set the parameters, and make the variables of the slots and the learning rate, which begin at zero.

        Args:
            parameters: the flat parameters.
            variable: makes a variable from a value.
            zeros: makes a float32 vector of zeros of the given size.
        """
        self.parameters = parameters
        size = parameters.layout.size
        self.slots = {
            name: variable(0.0 if name in SCALAR_SLOTS else zeros(size)) for name in self.slot_names
        }
        self.lr = variable(0.0)

    def get_slots(self) -> dict[str, Any]:
        """Copies of the slots: `{slot: {param ref: array}}`, and `{slot: array}` for `SCALAR_SLOTS`."""
        layout = self.parameters.layout
        values = {name: slot.numpy() for name, slot in self.slots.items()}
        return {
            name: value if name in SCALAR_SLOTS else layout.arrays(value) for name, value in values.items()
        }

    def slots_like(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Slots with the names, shapes and dtypes that saved ones must have; by default those of `get_slots`."""
        return self.get_slots()

    def set_slots(self, saved: Mapping[str, Any]) -> None:
        """Load slots from `get_slots`, which were checked against `slots_like`."""
        for name, slot in self.slots.items():
            value = saved[name]
            if name not in SCALAR_SLOTS:
                value = self.parameters.layout.vector(value)
            slot.assign(value)

    def step(self, ops: Ops, gradient: Tensor, guard: Guard) -> None:
        """Change the parameters and slots by one step. Compiled update modes trace this method.

        Args:
            ops: tensor functions.
            gradient: the flat gradient [size].
            guard: `guard(new, old)` gives the value to keep; `nonfinite="skip"` keeps the old one.
        """
        old = self.parameters.read()
        slots = {name: slot.read() for name, slot in self.slots.items()}
        change, new_slots = self.compute(ops, gradient, old, slots, self.lr.read())
        for name, slot in self.slots.items():
            slot.assign(guard(new_slots[name], slots[name]))
        self.parameters.assign(guard(old - change, old))

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """Compute one step; a pure function.

        Args:
            ops: tensor functions.
            gradient: flat [size].
            parameters: flat [size].
            slots: `{slot name: tensor}`, [size] or scalars.
            lr: the learning rate, a scalar.

        Returns:
            The change to subtract from the parameters [size], and the new slots.
        """
        raise NotImplementedError


@dataclass(eq=False, kw_only=True)
class Adam(Optimizer):
    """Adam, with epsilon outside the root of the bias-corrected second moment.

    m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  change = lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps).
    Source: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", arXiv:1412.6980, algorithm 1.

    Args:
        beta1: decay of the mean of gradients, in [0, 1).
        beta2: decay of the mean of squared gradients, in [0, 1).
        eps: added to the root.
    """

    slot_names = ("m", "v", "count")

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """See `Optimizer.compute`."""
        m = _decayed(slots["m"], gradient, self.beta1)
        v = _decayed(slots["v"], gradient * gradient, self.beta2)
        count = slots["count"] + 1.0
        correction1, correction2 = (_one_minus_power(ops, beta, count) for beta in (self.beta1, self.beta2))
        change = (lr / correction1) * m / (ops.sqrt(v) / ops.sqrt(correction2) + self.eps)
        return change, {"m": m, "v": v, "count": count}


def _decayed(old: Tensor, new: Tensor, decay: float) -> Tensor:
    """`decay * old + (1 - decay) * new`, computed as torch's lerp: exact at a decay of 0, no drift near 1."""
    return old + (1.0 - decay) * (new - old) if decay > 0.5 else new + decay * (old - new)


def _one_minus_power(ops: Ops, beta: float, count: Tensor) -> Tensor:
    """`1 - beta^count` as `-expm1(count log beta)`: the power itself would lose four of float32's seven digits."""
    return -ops.expm1(count * log(beta)) if beta > 0.0 else ops.ones_like(count)


@dataclass(eq=False, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: `change += lr * weight_decay * p`.

    Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", arXiv:1711.05101, algorithm 2.

    Args:
        weight_decay: factor of the parameters.
    """

    weight_decay: float = 0.01

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """See `Optimizer.compute`."""
        change, new_slots = super().compute(ops, gradient, parameters, slots, lr)
        return change + lr * self.weight_decay * parameters, new_slots


@dataclass(eq=False, kw_only=True)
class SGD(Optimizer):
    """Gradient descent with momentum.

    buf = momentum * buf + g;  change = lr * buf, or lr * (g + momentum * buf) with Nesterov's momentum.

    Sources: Polyak 1964, doi:10.1016/0041-5553(64)90137-5 (momentum); Sutskever et al. 2013, "On the importance of
    initialization and momentum in deep learning", equations 1 to 4, in torch's form: the learning rate stands outside
    the buffer.

    Args:
        momentum: decay of the buffer, in [0, 1); 0 is plain gradient descent.
        nesterov: whether to use Nesterov's momentum.
    """

    slot_names = ("momentum",)

    momentum: float = 0.0
    nesterov: bool = False

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """See `Optimizer.compute`."""
        buffer = self.momentum * slots["momentum"] + gradient
        direction = gradient + self.momentum * buffer if self.nesterov else buffer
        return lr * direction, {"momentum": buffer}


@dataclass(eq=False, kw_only=True)
class RMSprop(Optimizer):
    """RMSprop, with epsilon outside the root as in torch.

    v = a v + (1-a) g^2;  buf = momentum * buf + g / (sqrt(v) + eps);  change = lr * buf.
    Source: Goodfellow, Bengio and Courville (2016), "Deep Learning", algorithm 8.5.

    Args:
        alpha: a, the decay of the mean of squared gradients, in [0, 1).
        eps: added to the root.
        momentum: decay of the buffer, in [0, 1).
    """

    slot_names = ("v", "momentum")

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """See `Optimizer.compute`."""
        v = _decayed(slots["v"], gradient * gradient, self.alpha)
        buffer = self.momentum * slots["momentum"] + gradient / (ops.sqrt(v) + self.eps)
        return lr * buffer, {"v": v, "momentum": buffer}


# --- what happens only in every n-th gradient step ---------------------------------------------------------


class StepCount:
    """Counts gradient steps: the n-th, the 2n-th and so on are due. One that `nonfinite="skip"` skips is not counted.

    Args:
        n: at least 1; with 1 nothing is counted.
        variable: makes a variable from a value.
    """

    def __init__(self, n: int, variable: Callable[[Any], Variable]) -> None:
        self.n = n
        self._since = variable(0.0) if n > 1 else None

    @property
    def variables(self) -> list[Variable]:
        """The count; empty if every step is due."""
        return [] if self._since is None else [self._since]

    def count(self, ops: Ops, guard: Guard) -> Guard:
        """Count a step. Traced.

        Args:
            ops: tensor functions.
            guard: the step's guard.

        Returns:
            The guard for values that change only if this step is due.
        """
        if self._since is None:
            return guard
        before = self._since.read()
        now = before + 1.0
        is_due = now >= self.n
        self._since.assign(guard(ops.where(is_due, 0.0, now), before))
        return lambda new, old: guard(ops.where(is_due, new, old), old)

    def count_on_host(self) -> bool:
        """Count a step in untraced code, where the count can be read; returns whether the step is due."""
        if self._since is None:
            return True
        now = float(self._since.read()) + 1.0
        is_due = now >= self.n
        self._since.assign(0.0 if is_due else now)
        return is_due

    def get_state(self) -> dict[str, Any]:
        """The count, a float32 scalar; empty if every step is due."""
        return {} if self._since is None else {STEPS_SINCE: self._since.numpy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `get_state` returned; without a count in it, start counting. Other entries are ignored."""
        if self._since is not None:
            self._since.assign(state.get(STEPS_SINCE, 0.0))


class DelayedOptimizer(Optimizer):
    """An optimizer that steps only in every n-th gradient step: `register_optimizer(..., every=n)`.

    In the other steps its gradient is not used, and parameters and slots stay as they are.

    Args:
        optimizer: the optimizer that steps then.
        every: n, at least 2.
    """

    def __init__(self, optimizer: Optimizer, every: int) -> None:
        self.optimizer = optimizer
        self.every = every

    @property
    def is_bound(self) -> bool:
        """See `Optimizer`."""
        return self.optimizer.is_bound

    def bind(
        self, parameters: FlatVariable, variable: Callable[[Any], Variable], zeros: Callable[[int], Any]
    ) -> None:
        """See `Optimizer.bind`."""
        self.optimizer.bind(parameters, variable, zeros)
        self.parameters = self.optimizer.parameters
        self.steps = StepCount(self.every, variable)

    @property
    def variables(self) -> list[Variable]:
        """See `Optimizer`."""
        return [*self.optimizer.variables, *self.steps.variables]

    def step(self, ops: Ops, gradient: Tensor, guard: Guard) -> None:
        """See `Optimizer.step`."""
        self.optimizer.step(ops, gradient, self.steps.count(ops, guard))

    def get_slots(self) -> dict[str, Any]:
        """See `Optimizer`."""
        return {**self.optimizer.get_slots(), **self.steps.get_state()}

    def slots_like(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """See `Optimizer`."""
        return {**self.optimizer.slots_like(saved), **self.steps.get_state()}

    def set_slots(self, saved: Mapping[str, Any]) -> None:
        """See `Optimizer`."""
        self.optimizer.set_slots(without_count(saved))
        self.steps.set_state(saved)


def without_count(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state without the count of steps."""
    return {name: values for name, values in state.items() if name != STEPS_SINCE}


def with_count_as_in(template: Mapping[str, Any], saved: Any) -> dict[str, Any]:
    """The expected form of a saved state: with the count only if it has one, because n may have changed.

    Args:
        template: a current state.
        saved: the saved state, not checked yet.

    Returns:
        The template, with or without the count.
    """
    has_count = isinstance(saved, Mapping) and STEPS_SINCE in saved
    return {**without_count(template), **({STEPS_SINCE: np.zeros((), np.float32)} if has_count else {})}


def undelayed(optimizer: Optimizer) -> Optimizer:
    """The optimizer itself, without the wrapper that `every` may have put around it."""
    return optimizer.optimizer if isinstance(optimizer, DelayedOptimizer) else optimizer


# --- from settings ------------------------------------------------------------------------------------------

OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD, "rmsprop": RMSprop}
"""The types that the setting `optimizer={"type": ...}` accepts."""


def make_optimizer(settings: Mapping[str, Any]) -> Optimizer:
    """Make an optimizer from the setting `optimizer`, such as `{"type": "adam", "eps": 1e-5}`.

    Raises:
        ConfigError: the type or a hyperparameter is unknown; the error names the closest one.
    """
    hyperparameters = dict(settings)
    kind = hyperparameters.pop("type", "adam")
    if kind not in OPTIMIZERS:
        hint = did_you_mean(str(kind), OPTIMIZERS)
        raise ConfigError(f"optimizer type {kind!r}; there are {', '.join(OPTIMIZERS)}.{hint}")
    known = [each.name for each in fields(OPTIMIZERS[kind]) if each.init]
    for name in hyperparameters:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(f"optimizer {kind!r} has no setting {name!r}; it has {', '.join(known)}.{hint}")
    return OPTIMIZERS[kind](**hyperparameters)
