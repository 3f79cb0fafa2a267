"""What `plugrad.testing.backend_suite` needs from JAX: an optax optimizer and a flax.nnx model, as users write them.

`plugrad certify jax` finds these fixtures here. Both packages are extras: without them the tests of what they
are for are left out, and the rest is proven.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import jax
import pytest


@pytest.fixture
def native_optimizer() -> Callable[[Sequence[Any], float], Any]:
    """`gradient_descent`, where optax is installed."""
    pytest.importorskip("optax", reason=_MISSING.format("optax"))
    return gradient_descent


@pytest.fixture
def user_model() -> Callable[[], Any]:
    """`NormedModel`, with the same weights each time, where flax is installed."""
    pytest.importorskip("flax", reason=_MISSING.format("flax"))
    return NormedModel


_MISSING = 'not proven: {} is missing: pip install "plugrad[flax]"'


def gradient_descent(params: Sequence[Any], lr: float) -> Any:
    """optax's SGD with its learning rate in the state."""
    import optax

    return optax.inject_hyperparams(optax.sgd)(learning_rate=lr)


if find_spec("flax") is not None:
    from flax import nnx

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
