"""Acting in tensors: who can, and the random numbers of several steps in one copy to the device."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from plugrad.types import Array, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner


def why_not_in_tensors(learner: "Learner", module_id: ModuleID, explore: bool) -> str:
    """Why a module cannot act in tensors; "" if it can.

    Args:
        learner: a built learner.
        module_id: the module.
        explore: whether it explores.

    Returns:
        The words.
    """
    module = learner.module[module_id]
    if module_id not in learner.trainable_module_ids:
        return f"module {module_id!r} ({module.class_name}) computes in numpy"
    if module.is_stateful:
        return f"module {module_id!r} has a recurrent state, which is kept in numpy"
    arrays, tensors = map(learner._hooks.is_authors, ("get_exploration_inputs", "get_exploration_tensors"))
    if explore and arrays and not tensors:
        return f"{type(learner.config).__name__} explores in numpy (get_exploration_inputs, no get_exploration_tensors)"
    return ""


class NoiseAhead:
    """Draws what all steps of a sample need when the first of them asks, in the order in which they would draw it.

    Args:
        rng: draws the numbers.
        num_steps: how many steps.
    """

    def __init__(self, rng: np.random.Generator, num_steps: int = 1) -> None:
        self.rng = rng
        self._num_steps = num_steps
        self._left: list[Tensor] = []

    def take(self, draw: Callable[[], Array], to_tensor: Callable[[Array], Tensor]) -> Tensor:
        """The numbers of the next step.

        Args:
            draw: draws those of one step.
            to_tensor: copies an array to the device.

        Returns:
            A tensor on the device.
        """
        if not self._left:
            drawn = to_tensor(np.stack([draw() for _ in range(self._num_steps)]))
            self._left = [drawn[n] for n in reversed(range(self._num_steps))]
        return self._left.pop()
