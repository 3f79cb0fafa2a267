"""A hand-written update in TensorFlow 2: every epoch and minibatch in one `tf.function`, compiled by XLA."""

# ruff: noqa: D102  (what the methods are for is said in contestants.Contestant)

from typing import Any

import numpy as np
import tensorflow as tf
from contestants import Contestant
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
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return WholeUpdate(cell, seed)


class WholeUpdate(Contestant):
    """A pure function of (flat parameters, moments, step count), looped over the minibatches by `tf.while_loop`."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self._cell = cell
        self._rng = np.random.default_rng(seed)
        weights = initial_weights(cell, seed)
        self._shapes = {name: value.shape for name, value in weights.items()}
        flat = np.concatenate([value.reshape(-1) for value in weights.values()])
        self._state: tuple[Any, ...] = (tf.constant(flat), *tf.zeros((2, len(flat))), tf.constant(0.0))
        self._program = tf.function(self._whole, autograph=False, jit_compile=True)

    def describe(self) -> str:
        return f"tensorflow {tf.__version__}, one XLA program per update"

    def update(self, shuffle: bool) -> None:
        columns = [tf.constant(self.batch[name]) for name in COLUMNS]
        order = row_order(self._cell, len(self.batch["obs"]), self._rng if shuffle else None)
        *state, loss = self._program(*self._state, tf.constant(order.astype(np.int32)), columns)
        self._state = tuple(state)
        float(loss)

    def _whole(self, flat: Any, m: Any, v: Any, t: Any, order: Any, columns: list[Any]) -> tuple[Any, ...]:
        steps = order.shape[0]

        def body(n: Any, total: Any, *state: Any) -> tuple[Any, ...]:
            minibatch = [tf.gather(each, order[n]) for each in columns]
            loss, state = self._step(minibatch, *state)
            return n + 1, total + loss, *state

        start = (tf.constant(0), tf.constant(0.0), flat, m, v, t)
        _, total, *state = tf.while_loop(lambda n, *_: n < steps, body, start, maximum_iterations=steps)
        return *state, total / steps

    def _step(self, minibatch: list[Any], flat: Any, m: Any, v: Any, t: Any) -> tuple[Any, tuple[Any, ...]]:
        with tf.GradientTape() as tape:
            tape.watch(flat)
            loss = self._loss(flat, *minibatch)
        gradient = tape.gradient(loss, flat)
        gradient *= tf.minimum(1.0, GRAD_CLIP / (tf.norm(gradient) + 1e-6))
        beta1, beta2 = ADAM_BETAS
        t = t + 1.0
        m = m + (1.0 - beta1) * (gradient - m)
        v = v + (1.0 - beta2) * (gradient * gradient - v)
        rate = LEARNING_RATE / (1.0 - beta1**t)
        flat = flat - rate * m / (tf.sqrt(v) / tf.sqrt(1.0 - beta2**t) + ADAM_EPS)
        return loss, (flat, m, v, t)

    def _loss(self, flat: Any, obs: Any, actions: Any, old_logp: Any, advantages: Any, targets: Any) -> Any:
        named = self._named(flat)
        logp = _log_prob(self._encoder(named, "pi", obs), named.get("pi.log_std"), actions)
        ratio = tf.exp(logp - old_logp)
        clipped = tf.clip_by_value(ratio, 1.0 - CLIP_PARAM, 1.0 + CLIP_PARAM)
        policy = tf.reduce_mean(tf.minimum(ratio * advantages, clipped * advantages))
        return VF_COEFF * tf.reduce_mean(tf.square(self._encoder(named, "vf", obs)[:, 0] - targets)) - policy

    def _encoder(self, named: dict[str, Any], name: str, x: Any) -> Any:
        for n in range(len(self._cell.hiddens)):
            x = tf.tanh(tf.matmul(x, named[f"{name}.{n}.weight"]) + named[f"{name}.{n}.bias"])
        return tf.matmul(x, named[f"{name}.out.weight"]) + named[f"{name}.out.bias"]

    def _named(self, flat: Any) -> dict[str, Any]:
        parts = tf.split(flat, [int(np.prod(shape)) for shape in self._shapes.values()])
        shapes = zip(self._shapes.items(), parts, strict=True)
        return {name: tf.reshape(part, shape) for (name, shape), part in shapes}

    def weights(self) -> Weights:
        return {name: value.numpy() for name, value in self._named(self._state[0]).items()}


def _log_prob(inputs: Any, log_std: Any, actions: Any) -> Any:
    """Log-probability, categorical or Gaussian. It uses one-hot: XLA makes a slow scatter of a gather's gradient."""
    if log_std is None:
        chosen = tf.one_hot(actions, inputs.shape[-1])
        return tf.reduce_sum(tf.nn.log_softmax(inputs) * chosen, -1)
    scaled = (actions - inputs) * tf.exp(-log_std)
    return -0.5 * tf.reduce_sum(scaled * scaled + LOG_2PI, -1) - tf.reduce_sum(log_std)
