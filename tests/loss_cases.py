"""Calls of `plugrad.losses`, and what the papers say that they give: numpy and loops, one row at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from plugrad import losses

B, CRITICS, ACTIONS, N, M = 6, 2, 3, 4, 5
rng = np.random.default_rng(7)


def reals(*shape, scale=1.0):
    """Off the kinks of all losses here."""
    return (scale * rng.normal(size=shape)).astype(np.float32)


def logs(*shape):
    x = np.exp(reals(*shape, ACTIONS).astype(np.float64))
    return np.log(x / x.sum(-1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A call.

    Args:
        name: the loss, and what is special about this call.
        call: `call(ops, *inputs)`.
        inputs: arrays; those of float32 have gradients.
        row: `row(*inputs of the row)`, in float64, is what the paper says of it.
        constants: the inputs without a gradient.
        rows: the axis of each input that counts rows.
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    row: Callable[..., float]
    constants: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()

    @property
    def expected(self):
        axes = self.rows or (0,) * len(self.inputs)
        wide = [each.astype(np.float64) for each in self.inputs]
        return np.array(
            [self.row(*(np.take(x, n, axis) for x, axis in zip(wide, axes, strict=True))) for n in range(B)]
        )


def surrogate(ratio, advantage, low, high):
    return min(ratio * advantage, max(1.0 - low, min(ratio, 1.0 + high)) * advantage)


def huber(u, kappa):
    return 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)


def quantile_huber(quantiles, targets, kappa):
    total = 0.0
    for i, quantile in enumerate(quantiles, 1):
        tau = (2 * i - 1) / (2 * len(quantiles))
        for target in targets:
            u = target - quantile
            total += abs(tau - (u < 0)) * huber(u, kappa) / kappa / len(targets)
    return total


def clipped_value(value, old, target):
    near = old + max(-0.3, min(value - old, 0.3))
    return max((value - target) ** 2, (near - target) ** 2) / 2


def soft(logp, q, alpha):
    return sum(np.exp(p) * (min(q[:, a]) - alpha * p) for a, p in enumerate(logp))


def cql(sampled, density, q):
    return 0.7 * np.log(sum(np.exp((s - d) / 0.7) for s, d in zip(sampled, density, strict=True))) - q


def k3(logp, reference):
    return np.exp(reference - logp) - (reference - logp) - 1.0


ratios = np.float32([0.5, 0.9, 1.1, 1.3, 0.7, 1.6])
gains = np.float32([1.2, -0.4, 2.0, 0.8, -1.5, -0.3])
values, targets = reals(B), reals(B)
quantiles, samples = reals(B, N), reals(B, M, scale=2.0)
critics = reals(CRITICS, B)
by_critic = (0, 1)

CASES = [
    Case(
        "clipped_surrogate",
        partial(losses.clipped_surrogate, clip_param=0.2),
        (ratios, gains),
        lambda r, a: surrogate(r, a, 0.2, 0.2),
    ),
    Case(
        "grpo_surrogate",
        losses.grpo_surrogate,
        (np.log(ratios) - 1.0, np.full(B, -1.0, np.float32), gains),
        lambda new, old, a: surrogate(np.exp(new - old), a, 0.2, 0.2),
        constants=(1, 2),
    ),
    Case(
        "grpo_surrogate with two bounds",
        partial(losses.grpo_surrogate, clip_low=0.2, clip_high=0.4),
        (np.log(ratios) - 1.0, np.full(B, -1.0, np.float32), gains),
        lambda new, old, a: surrogate(np.exp(new - old), a, 0.2, 0.4),
        constants=(1, 2),
    ),
    Case(
        "kl_penalty k1",
        partial(losses.kl_penalty, estimator="k1"),
        (values, targets),
        lambda p, r: p - r,
        constants=(1,),
    ),
    Case(
        "kl_penalty k2",
        partial(losses.kl_penalty, estimator="k2"),
        (values, targets),
        lambda p, r: (p - r) ** 2 / 2,
        constants=(1,),
    ),
    Case("kl_penalty k3", losses.kl_penalty, (values, targets), k3, constants=(1,)),
    Case(
        "vtrace_policy_gradient",
        losses.vtrace_policy_gradient,
        (values, gains),
        lambda logp, a: -logp * a,
        constants=(1,),
    ),
    Case(
        "marwil_weight",
        partial(losses.marwil_weight, beta=0.5, norm=2.0),
        (gains,),
        lambda a: np.exp(0.5 * a / (2.0 + 1e-8)),
        constants=(0,),
    ),
    Case(
        "advantage_weight",
        partial(losses.advantage_weight, beta=1.5, max_weight=4.0),
        (gains,),
        lambda a: min(np.exp(1.5 * a), 4.0),
        constants=(0,),
    ),
    Case(
        "sac_policy_loss",
        partial(losses.sac_policy_loss, alpha=0.3),
        (values, critics),
        lambda logp, q: 0.3 * logp - min(q),
        rows=by_critic,
    ),
    Case(
        "sac_discrete_policy_loss",
        partial(losses.sac_discrete_policy_loss, alpha=0.3),
        (logs(B), reals(CRITICS, B, ACTIONS)),
        lambda logp, q: -soft(logp, q, 0.3),
        rows=by_critic,
    ),
    Case(
        "sac_temperature_loss",
        lambda ops, log_alpha, entropy: losses.sac_temperature_loss(ops, log_alpha, entropy, -2.0),
        (np.full(B, -0.7, np.float32), values),
        lambda log_alpha, entropy: log_alpha * (entropy + 2.0),
        constants=(1,),
    ),
    Case(
        "td_targets",
        partial(losses.td_targets, gamma=0.9),
        (values, np.array([0, 1, 0, 0, 1, 0], bool), targets),
        lambda r, ended, v: r + (0.0 if ended else 0.9 * v),
    ),
    Case(
        "td_targets of n steps",
        lambda ops, r, ended, v, n: losses.td_targets(ops, r, ended, v, 0.9, n),
        (values, np.array([0, 1, 0, 0, 1, 0], bool), targets, np.array([1, 2, 3, 1, 2, 3])),
        lambda r, ended, v, n: r + (0.0 if ended else 0.9**n * v),
    ),
    Case("value_loss", losses.value_loss, (values, targets), lambda v, r: (v - r) ** 2 / 2),
    Case(
        "capped_value_loss",
        partial(losses.capped_value_loss, cap=0.8),
        (values, targets),
        lambda v, r: min((v - r) ** 2, 0.8),
    ),
    Case(
        "clipped_value_loss",
        partial(losses.clipped_value_loss, clip_param=0.3),
        (values, values + np.float32([0.1, -0.2, 0.5, 0.9, -0.6, -1.1]), targets),
        clipped_value,
        constants=(1,),
    ),
    Case("critic_loss", losses.critic_loss, (critics,), lambda u: sum(u**2), rows=(1,)),
    Case(
        "sac_value",
        partial(losses.sac_value, alpha=0.3),
        (values, critics),
        lambda logp, q: min(q) - 0.3 * logp,
        rows=by_critic,
    ),
    Case(
        "sac_discrete_value",
        partial(losses.sac_discrete_value, alpha=0.3),
        (logs(B), reals(CRITICS, B, ACTIONS)),
        lambda logp, q: soft(logp, q, 0.3),
        rows=by_critic,
    ),
    Case(
        "quantile_huber_loss",
        losses.quantile_huber_loss,
        (quantiles, samples),
        lambda q, t: quantile_huber(q, t, 1.0),
        constants=(1,),
    ),
    Case(
        "quantile_huber_loss of a small kappa",
        partial(losses.quantile_huber_loss, kappa=0.25),
        (quantiles, samples),
        lambda q, t: quantile_huber(q, t, 0.25),
        constants=(1,),
    ),
    Case(
        "expectile_loss",
        partial(losses.expectile_loss, expectile=0.8),
        (gains,),
        lambda u: abs(0.8 - (u < 0)) * u**2,
    ),
    Case(
        "cql_penalty",
        partial(losses.cql_penalty, temperature=0.7),
        (reals(B, N), reals(B, N), values),
        cql,
    ),
]
