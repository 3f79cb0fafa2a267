"""The running moments of RND: the plugin's own state, which losses move, saved and undone with the learner."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrad import LearnerProtocol
from plugrad.ops import Variable
from plugrad.types import Array, ModuleID, Tensor

LEAST_VARIANCE = 1e-8


@dataclass(frozen=True)
class Moments:
    """Running means of some numbers and of their squares, over all minibatches that losses saw.

    Means of each learner's rows are means over all rows afterwards, so learners of a group compute what one does.

    Args:
        mean: [numbers].
        square: [numbers].
        count: of minibatches.
    """

    mean: Variable
    square: Variable
    count: Variable

    @classmethod
    def of(cls, learner: LearnerProtocol, module_id: ModuleID, what: str, numbers: int) -> "Moments":
        """Those of a module; the first call, outside of gradient steps, makes them.

        Args:
            learner: that has the module.
            module_id: whose they are.
            what: the numbers' name.
            numbers: how many there are.
        """
        name = f"{module_id}/rnd/{what}"
        zeros = np.zeros(numbers, np.float32)
        return cls(
            learner.register_state(f"{name}_mean", zeros),
            learner.register_state(f"{name}_square", zeros),
            learner.register_state(f"{name}_count", 0.0),
        )

    def scale(self, values: Array) -> tuple[Array, Array]:
        """Mean and standard deviation, in numpy; before the first minibatch those of the values themselves.

        Args:
            values: [B, numbers].
        """
        if not self.count.numpy():
            return values.mean(0), np.sqrt(np.maximum(values.var(0), LEAST_VARIANCE))
        mean = self.mean.numpy()
        return mean, np.sqrt(np.maximum(self.square.numpy() - np.square(mean), LEAST_VARIANCE))

    def move(self, ops: Any, values: Tensor) -> None:
        """Take in a minibatch. Traced.

        Args:
            ops: tensor functions.
            values: [B, numbers].
        """
        number = self.count.read() + 1.0
        for variable, found in ((self.mean, values), (self.square, ops.square(values))):
            old = variable.read()
            variable.assign(old + (ops.mean(ops.stop_gradient(found), axis=0) - old) / number)
        self.count.assign(number)
