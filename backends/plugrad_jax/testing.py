"""What `plugrad.testing.backend_suite` needs from JAX: an optax optimizer and a flax.nnx model, as users write them.

`plugrad certify jax` finds these fixtures here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax
import pytest
from flax import nnx


@pytest.fixture
def native_optimizer() -> Callable[[Sequence[Any], float], Any]:
    """`gradient_descent`."""
    return gradient_descent


@pytest.fixture
def user_model() -> Callable[[], nnx.Module]:
    """`NormedModel`, with the same weights each time."""
    return NormedModel


def gradient_descent(params: Sequence[Any], lr: float) -> Any:
    """optax's SGD with its learning rate in the state."""
    return optax.inject_hyperparams(optax.sgd)(learning_rate=lr)


class NormedModel(nnx.Module):
    """A policy and a value over BatchNorm and Dropout."""

    def __init__(self, dropout: float = 0.5, rngs: nnx.Rngs | None = None) -> None:
        rngs = rngs or nnx.Rngs(0)
        self.body = nnx.Linear(3, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs if dropout else None)
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Logits [B, 2] and values [B, 1] of observations [B, 3]."""
        outputs = self.head(self.dropout(jax.nn.tanh(self.norm(self.body(obs)))))
        return outputs[:, :2], outputs[:, 2:]
