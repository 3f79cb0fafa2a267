"""What happens only in every n-th gradient step: a delayed optimizer, an update of a target network.

A step that `nonfinite="skip"` skips is not counted.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from plugrad.gradients import FlatVariable
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Optimizer
from plugrad.types import Tensor

Guard = Callable[[Tensor, Tensor], Tensor]
"""`guard(new, old)` gives the value to keep after a step."""
STEPS_SINCE = "gradient_steps_since"
"""Key in states: gradient steps since the last one that was due."""


class EveryNth:
    """Counts gradient steps: the n-th, the 2n-th and so on are due.

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
        self.steps = EveryNth(self.every, variable)

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
