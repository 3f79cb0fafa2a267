"""What `plugrad.testing.backend_suite` needs from TensorFlow: an optimizer and a model, as users write them.

`plugrad certify tf2` finds these fixtures here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf


@pytest.fixture
def native_optimizer() -> Callable[[Sequence[Any], float], Any]:
    """`gradient_descent`."""
    return gradient_descent


@pytest.fixture
def user_model() -> Callable[[], Any]:
    """`NormedModel`, with the same weights each time."""

    def make() -> Any:
        tf.keras.utils.set_random_seed(0)
        return NormedModel()

    return make


def gradient_descent(params: Sequence[Any], lr: float) -> Any:
    """Keras' SGD."""
    return tf.keras.optimizers.SGD(lr)


class NormedModel(tf.keras.Model):  # type: ignore[misc]  # Keras has no types
    """A policy and a value over BatchNorm and Dropout."""

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.body = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(8),
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.Activation("tanh"),
                tf.keras.layers.Dropout(dropout),
            ]
        )
        self.head = tf.keras.layers.Dense(3)

    def call(self, obs: Any) -> tuple[Any, Any]:
        """Logits [B, 2] and values [B, 1] of observations [B, 3]."""
        outputs = self.head(self.body(obs))
        return outputs[:, :2], outputs[:, 2:]
