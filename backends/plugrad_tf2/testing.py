"""What `plugrad.testing.backend_suite` asks of TensorFlow: an optimizer and a model, as users write them.

`plugrad certify tf2` finds these fixtures here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf


@pytest.fixture
def native_optimizer() -> Callable[[Sequence[Any], float], Any]:
    """Keras' gradient descent."""
    return lambda params, lr: tf.keras.optimizers.SGD(lr)


@pytest.fixture
def user_model() -> Callable[[], Any]:
    """`NormedModel`, new each time."""
    return NormedModel


class NormedModel(tf.keras.Model):  # type: ignore[misc]  # Keras has no types
    """A policy and a value over BatchNorm and Dropout."""

    def __init__(self) -> None:
        super().__init__()
        seeded = [tf.keras.initializers.GlorotUniform(seed) for seed in (0, 1)]
        self.body = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(8, kernel_initializer=seeded[0]),
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.Activation("tanh"),
                tf.keras.layers.Dropout(0.5, seed=0),
            ]
        )
        self.head = tf.keras.layers.Dense(3, kernel_initializer=seeded[1])

    def call(self, obs: Any) -> tuple[Any, Any]:
        """Logits [B, 2] and values [B, 1] of observations [B, 3]."""
        outputs = self.head(self.body(obs))
        return outputs[:, :2], outputs[:, 2:]
