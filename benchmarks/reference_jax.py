"""A hand-written update in JAX: every epoch and minibatch in one jitted `lax.scan`."""

# ruff: noqa: D102  (what the methods are for is said in contestants.Contestant)

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from contestants import Contestant
from jax import lax
from workload import (
    ADAM_BETAS,
    ADAM_EPS,
    CLIP_PARAM,
    GRAD_CLIP,
    LEARNING_RATE,
    LOG_2PI,
    VF_COEFF,
    Cell,
    Weights,
    initial_weights,
    row_order,
)

COLUMNS = ("obs", "actions", "action_logp", "advantages", "value_targets")


def make(cell: Cell, seed: int, option: str) -> "WholeUpdate":
    return WholeUpdate(cell, seed)


class WholeUpdate(Contestant):
    """A pure function of (flat parameters, moments, step count), whose old values it may overwrite."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self._cell = cell
        self._rng = np.random.default_rng(seed)
        weights = initial_weights(cell, seed)
        self._shapes = {name: value.shape for name, value in weights.items()}
        flat = np.concatenate([value.reshape(-1) for value in weights.values()])
        self._state: Any = (jnp.asarray(flat), jnp.zeros(flat.size), jnp.zeros(flat.size), jnp.zeros(()))
        self._program = jax.jit(self._whole, donate_argnums=0)

    def describe(self) -> str:
        return f"jax {jax.__version__}, one XLA program per update"

    def update(self, shuffle: bool) -> None:
        columns = [self.batch[name] for name in COLUMNS]
        order = row_order(self._cell, len(self.batch["obs"]), self._rng if shuffle else None)
        self._state, loss = self._program(self._state, order.astype(np.int32), columns)
        float(loss)

    def _whole(self, state: Any, order: Any, columns: list[Any]) -> tuple[Any, Any]:
        def step(state: Any, rows: Any) -> tuple[Any, Any]:
            # What stands in `order` is in bounds, which `column[rows]` would look after.
            minibatch = [each.at[rows].get(mode="promise_in_bounds") for each in columns]
            return self._step(state, minibatch)

        state, losses = lax.scan(step, state, order)
        return state, losses.mean()

    def _step(self, state: Any, minibatch: list[Any]) -> tuple[Any, Any]:
        flat, m, v, t = state
        loss, gradient = jax.value_and_grad(partial(self._loss, minibatch=minibatch))(flat)
        gradient *= jnp.minimum(1.0, GRAD_CLIP / (jnp.sqrt(jnp.sum(gradient * gradient)) + 1e-6))
        beta1, beta2 = ADAM_BETAS
        t = t + 1.0
        m = m + (1.0 - beta1) * (gradient - m)
        v = v + (1.0 - beta2) * (gradient * gradient - v)
        rate = LEARNING_RATE / (1.0 - beta1**t)
        flat = flat - rate * m / (jnp.sqrt(v) / jnp.sqrt(1.0 - beta2**t) + ADAM_EPS)
        return (flat, m, v, t), loss

    def _loss(self, flat: Any, minibatch: list[Any]) -> Any:
        obs, actions, old_logp, advantages, targets = minibatch
        named = self._named(flat)
        logp = _log_prob(self._encoder(named, "pi", obs), named.get("pi.log_std"), actions)
        ratio = jnp.exp(logp - old_logp)
        clipped = jnp.clip(ratio, 1.0 - CLIP_PARAM, 1.0 + CLIP_PARAM)
        policy = jnp.mean(jnp.minimum(ratio * advantages, clipped * advantages))
        values = self._encoder(named, "vf", obs)[:, 0]
        return VF_COEFF * jnp.mean(jnp.square(values - targets)) - policy

    def _encoder(self, named: dict[str, Any], name: str, x: Any) -> Any:
        for n in range(len(self._cell.hiddens)):
            x = jnp.tanh(x @ named[f"{name}.{n}.weight"] + named[f"{name}.{n}.bias"])
        return x @ named[f"{name}.out.weight"] + named[f"{name}.out.bias"]

    def _named(self, flat: Any) -> dict[str, Any]:
        parts = lax.split(flat, [int(np.prod(shape)) for shape in self._shapes.values()])
        shapes = zip(self._shapes.items(), parts, strict=True)
        return {name: part.reshape(shape) for (name, shape), part in shapes}

    def weights(self) -> Weights:
        return {name: np.array(value) for name, value in self._named(self._state[0]).items()}


def _log_prob(inputs: Any, log_std: Any, actions: Any) -> Any:
    """Log-probability, categorical or Gaussian. It uses one-hot: XLA makes a slow scatter of a gather's gradient."""
    if log_std is None:
        chosen = jax.nn.one_hot(actions, inputs.shape[-1])
        return jnp.sum(jax.nn.log_softmax(inputs) * chosen, -1)
    scaled = (actions - inputs) * jnp.exp(-log_std)
    return -0.5 * jnp.sum(scaled * scaled + LOG_2PI, -1) - jnp.sum(log_std)
