"""The neutral optimizers: one formula each, over ops and flat vectors, so that all backends agree.

An optimizer is a pure function plus the variables that a learner gives it when it is registered: the flat parameters,
the slots and the learning rate. Formulas are those of torch.optim; Keras has another Adam. A backend gives a user's own
optimizer the same face. Knows no framework.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import log
from typing import Any, ClassVar

import numpy as np

from plugrad.errors import ConfigError, did_you_mean
from plugrad.gradients import FlatVariable
from plugrad.ops import Ops, Variable
from plugrad.types import Array, Tensor

Slots = dict[str, Tensor]
SCALAR_SLOTS = frozenset({"count"})
"""Slots with one number for all parameters; the others have one entry per parameter entry."""


@dataclass(eq=False, kw_only=True)
class Optimizer:
    """An optimizer of plugrad; after registration it also carries its variables.

    Attributes:
        parameters: the flat parameters that it steps.
        slots: `{slot name: variable}`: vectors [size], or scalars for `SCALAR_SLOTS`.
        lr: the learning rate, float32 scalar.
    """

    slot_names: ClassVar[tuple[str, ...]] = ()

    parameters: FlatVariable = field(init=False, repr=False)
    slots: dict[str, Variable] = field(init=False, repr=False, default_factory=dict)
    lr: Variable = field(init=False, repr=False)

    @property
    def is_bound(self) -> bool:
        """Whether it was registered with a learner."""
        return hasattr(self, "parameters")

    @property
    def variables(self) -> list[Variable]:
        """All that a step reads or changes."""
        return [self.parameters, *self.slots.values(), self.lr]

    def bind(
        self, parameters: FlatVariable, variable: Callable[[Any], Variable], zeros: Callable[[int], Any]
    ) -> None:
        """Take the parameters and make the slots (zero) and the learning rate (zero until it is set).

        Args:
            parameters: what to step.
            variable: makes a variable of a value.
            zeros: a float32 vector of zeros of this size.
        """
        self.parameters = parameters
        size = parameters.layout.size
        self.slots = {
            name: variable(0.0 if name in SCALAR_SLOTS else zeros(size)) for name in self.slot_names
        }
        self.lr = variable(0.0)

    def get_slots(self) -> dict[str, Any]:
        """`{slot: {param ref: array}}`, and `{slot: array}` for those with one value for all parameters; copies."""
        return {name: self._by_name(name, slot.numpy()) for name, slot in self.slots.items()}

    def slots_like(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """What `saved` must look like to fit: names, shapes and dtypes of `get_slots`."""
        return self.get_slots()

    def set_slots(self, saved: Mapping[str, Any]) -> None:
        """Take over what `get_slots` gave and `slots_like` was compared with."""
        refs = self.parameters.layout.refs
        for name, slot in self.slots.items():
            value = saved[name]
            is_scalar = name in SCALAR_SLOTS
            slot.assign(value if is_scalar else np.concatenate([np.ravel(value[ref]) for ref in refs]))

    def _by_name(self, slot: str, value: Array) -> Any:
        layout = self.parameters.layout
        if slot in SCALAR_SLOTS:
            return value
        parts = np.split(value, np.cumsum(layout.sizes)[:-1])
        return {
            ref: part.reshape(shape).copy()
            for ref, shape, part in zip(layout.refs, layout.shapes, parts, strict=True)
        }

    def step(self, ops: Ops, gradient: Tensor, guard: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Move the parameters by one step. Traced.

        Args:
            ops: tensor functions.
            gradient: flat, [size].
            guard: `guard(new, old)` decides what is kept (see `nonfinite="skip"`).
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
        """What to subtract from the parameters, and the new slots."""
        raise NotImplementedError


@dataclass(eq=False, kw_only=True)
class Adam(Optimizer):
    """Adam, epsilon outside the root of the bias-corrected second moment.

    m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  change = lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps).
    Source: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", arXiv:1412.6980, algorithm 1.
    """

    slot_names = ("m", "v", "count")

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """See the class."""
        m = _decayed(slots["m"], gradient, self.beta1)
        v = _decayed(slots["v"], gradient * gradient, self.beta2)
        count = slots["count"] + 1.0
        correction1, correction2 = (_one_minus_power(ops, beta, count) for beta in (self.beta1, self.beta2))
        change = (lr / correction1) * m / (ops.sqrt(v) / ops.sqrt(correction2) + self.eps)
        return change, {"m": m, "v": v, "count": count}


def _decayed(old: Tensor, new: Tensor, decay: float) -> Tensor:
    """decay * old + (1 - decay) * new, as torch's lerp: exact at a decay of 0, no drift near 1."""
    return old + (1.0 - decay) * (new - old) if decay > 0.5 else new + decay * (old - new)


def _one_minus_power(ops: Ops, beta: float, count: Tensor) -> Tensor:
    """1 - beta^count as -expm1(count log beta): the power itself would lose four of float32's seven digits."""
    return -ops.expm1(count * log(beta)) if beta > 0.0 else ops.ones_like(count)


@dataclass(eq=False, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: change += lr * weight_decay * p.

    Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", arXiv:1711.05101, algorithm 2.
    """

    weight_decay: float = 0.01

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """See the class."""
        change, new_slots = super().compute(ops, gradient, parameters, slots, lr)
        return change + lr * self.weight_decay * parameters, new_slots


@dataclass(eq=False, kw_only=True)
class SGD(Optimizer):
    """Gradient descent: buf = momentum * buf + g;  change = lr * buf, or lr * (g + momentum * buf) for Nesterov.

    Sources: Polyak 1964, doi:10.1016/0041-5553(64)90137-5 (momentum); Sutskever et al. 2013, "On the importance of
    initialization and momentum in deep learning", equations 1 to 4, in torch's form: the learning rate stands outside
    the buffer.
    """

    slot_names = ("momentum",)

    momentum: float = 0.0
    nesterov: bool = False

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """See the class."""
        buffer = self.momentum * slots["momentum"] + gradient
        direction = gradient + self.momentum * buffer if self.nesterov else buffer
        return lr * direction, {"momentum": buffer}


@dataclass(eq=False, kw_only=True)
class RMSprop(Optimizer):
    """RMSprop, epsilon outside the root as in torch.

    v = a v + (1-a) g^2;  buf = momentum * buf + g / (sqrt(v) + eps);  change = lr * buf.
    Source: Goodfellow, Bengio and Courville (2016), "Deep Learning", algorithm 8.5.
    """

    slot_names = ("v", "momentum")

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0

    def compute(
        self, ops: Ops, gradient: Tensor, parameters: Tensor, slots: Mapping[str, Tensor], lr: Tensor
    ) -> tuple[Tensor, Slots]:
        """See the class."""
        v = _decayed(slots["v"], gradient * gradient, self.alpha)
        buffer = self.momentum * slots["momentum"] + gradient / (ops.sqrt(v) + self.eps)
        return lr * buffer, {"v": v, "momentum": buffer}


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD, "rmsprop": RMSprop}


def make_optimizer(settings: Mapping[str, Any]) -> Optimizer:
    """An optimizer from `{"type": "adam", "eps": 1e-5}`.

    Raises:
        ConfigError: unknown type or hyperparameter, with the closest name.
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
