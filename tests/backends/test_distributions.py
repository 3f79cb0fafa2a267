"""Action distributions on every backend: against plain numpy formulas, in traced programs, and by shape."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugrad import numpy_ops
from plugrad.distributions import (
    Distribution,
    distribution_class,
)
from plugrad.errors import BatchError
from plugrad.ops import Ops
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_config
from plugrad.types import Array


@pytest.fixture(scope="session")
def ops(backend: str) -> Ops:
    """Of a wider scope than the suites': hypothesis wants that. On the CPU, where numpy reads its tensors."""
    learner = ActorCriticLearner(config=tiny_config(backend).framework(backend, device="cpu"))
    learner.build()
    return learner.ops


SPACES: dict[str, gym.Space[Any]] = {
    "categorical": gym.spaces.Discrete(4),
    "multi-categorical": gym.spaces.MultiDiscrete([2, 1, 3]),
    "gaussian": gym.spaces.Box(-1.0, 1.0, (3,)),
}
seeds = st.integers(0, 2**32 - 1)
leading_shapes = st.sampled_from([(), (1,), (5,), (2, 3)])


def draw_logits(space: str, leading: tuple[int, ...], rng: np.random.Generator) -> Array:
    width = distribution_class(SPACES[space], numpy_ops).input_dim
    return rng.uniform(-2.0, 2.0, (*leading, width)).astype(np.float32)


# The formulas again, in float64 and by another road: products of probabilities and of densities.


def reference_probabilities(logits: Array) -> Any:
    weights = np.exp(logits.astype(np.float64))
    return weights / weights.sum(-1, keepdims=True)


def reference_parts(space: str, logits: Array) -> list[Array]:
    """The probabilities of each independent choice."""
    sizes = [4] if space == "categorical" else [2, 1, 3]
    return [reference_probabilities(part) for part in np.split(logits, np.cumsum(sizes)[:-1], axis=-1)]


def reference_logp(space: str, logits: Array, actions: Array) -> Any:
    if space == "gaussian":
        mean, std = logits[..., :3].astype(np.float64), np.exp(logits[..., 3:].astype(np.float64))
        density = np.exp(-((actions - mean) ** 2) / (2 * std**2)) / np.sqrt(2 * np.pi * std**2)
        return np.log(np.prod(density, axis=-1))
    columns = actions[..., None] if space == "categorical" else actions
    chosen = [
        np.take_along_axis(p, columns[..., i, None], -1)[..., 0]
        for i, p in enumerate(reference_parts(space, logits))
    ]
    return np.log(np.prod(chosen, axis=0))


def reference_entropy(space: str, logits: Array) -> Any:
    if space == "gaussian":
        return np.sum(np.log(np.exp(logits[..., 3:]) * np.sqrt(2 * np.pi * np.e)), axis=-1)
    return np.sum([-np.sum(p * np.log(p), -1) for p in reference_parts(space, logits)], axis=0)


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=15)
@given(leading=leading_shapes, seed=seeds)
def test_logp_and_entropy_are_the_textbook_formulas(
    ops: Ops, space: str, leading: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = draw_logits(space, leading, rng)
    actions = distribution_class(SPACES[space], numpy_ops).from_logits(logits).sample(rng)
    distribution = distribution_class(SPACES[space], ops).from_logits(ops.asarray(logits))
    logp, entropy = np.asarray(distribution.logp(ops.asarray(actions))), np.asarray(distribution.entropy())
    assert (logp.shape, str(logp.dtype)) == (entropy.shape, str(entropy.dtype)) == (leading, "float32")
    np.testing.assert_allclose(logp, reference_logp(space, logits, actions), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(entropy, reference_entropy(space, logits), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=15)
@given(leading=leading_shapes, seed=seeds)
def test_kl_is_not_negative_and_zero_only_to_itself(
    ops: Ops, space: str, leading: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    bound = distribution_class(SPACES[space], ops)
    p, q = (bound.from_logits(ops.asarray(draw_logits(space, leading, rng))) for _ in range(2))
    assert np.asarray(p.kl(q)).shape == leading
    assert (np.asarray(p.kl(q)) > 1e-4).all()
    np.testing.assert_allclose(np.asarray(p.kl(p)), np.zeros(leading), atol=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_kl_and_entropy_are_the_means_over_samples(ops: Ops, space: str) -> None:
    """KL(p || q) = E_p[log p - log q] and H(p) = E_p[-log p], by 200,000 samples: 5 standard errors."""
    rng = np.random.default_rng(1)
    # Near enough that samples of p carry all of the mean of log q.
    pair = [0.3 * draw_logits(space, (), rng) for _ in range(2)]
    p, q = (distribution_class(SPACES[space], ops).from_logits(ops.asarray(logits)) for logits in pair)
    many = np.tile(pair[0], (200_000, 1))
    actions = distribution_class(SPACES[space], numpy_ops).from_logits(many).sample(rng)
    logp, logq = (reference_logp(space, logits, actions) for logits in (many, np.tile(pair[1], (200_000, 1))))
    for closed, samples in [(p.kl(q), logp - logq), (p.entropy(), -logp)]:
        assert abs(float(closed) - samples.mean()) < 5 * samples.std() / np.sqrt(200_000)


@pytest.mark.parametrize("space", SPACES)
def test_gradients_are_finite_differences(ops: Ops, gradients: Callable[..., Any], space: str) -> None:
    rng = np.random.default_rng(2)
    logits, other = (draw_logits(space, (4,), rng).astype(np.float64) for _ in range(2))
    actions = distribution_class(SPACES[space], numpy_ops).from_logits(logits).sample(rng)
    weights = np.arange(1.0, 5.0)

    def objective(some_ops: Any, x: Any) -> Any:
        p, q = (
            distribution_class(SPACES[space], some_ops).from_logits(y) for y in (x, some_ops.asarray(other))
        )
        terms = p.logp(some_ops.asarray(actions)) + 2.0 * p.entropy() + 3.0 * p.kl(q) + 4.0 * q.kl(p)
        return some_ops.sum(some_ops.asarray(weights) * terms)

    if space == "gaussian":
        actions = actions.astype(np.float64)
    expected = np.zeros_like(logits)
    for index in np.ndindex(logits.shape):
        shift = np.zeros_like(logits)
        shift[index] = 1e-6
        expected[index] = (objective(numpy_ops, logits + shift) - objective(numpy_ops, logits - shift)) / 2e-6
    (found,) = gradients(lambda x: objective(ops, x), [ops.asarray(logits)])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_distributions_work_in_a_traced_program(ops: Ops, trace: Callable[..., Any], space: str) -> None:
    rng = np.random.default_rng(3)
    logits, other = (draw_logits(space, (2, 3), rng) for _ in range(2))
    actions = distribution_class(SPACES[space], numpy_ops).from_logits(logits).sample(rng)

    def values(some_ops: Any, *tensors: Any) -> list[Any]:
        p, q = (distribution_class(SPACES[space], some_ops).from_logits(x) for x in tensors[:2])
        return [p.logp(tensors[2]), p.entropy(), p.kl(q), some_ops.cast(p.mode(), "float32")]

    arrays = [logits, other, actions]
    for want, got in zip(
        values(numpy_ops, *arrays), trace(lambda *xs: values(ops, *xs), arrays), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# Masks.


def test_masked_choices_have_no_influence(ops: Ops, gradients: Callable[..., Any]) -> None:
    """-inf forbids a choice: the rest is as if it were not there, and nothing becomes NaN."""
    three, two = (distribution_class(gym.spaces.Discrete(n), ops) for n in (3, 2))
    masked, free = np.asarray([[0.5, -np.inf, -1.0]], np.float32), np.asarray([[0.5, -1.0]], np.float32)
    p, q = three.from_logits(ops.asarray(masked)), two.from_logits(ops.asarray(free))
    np.testing.assert_allclose(np.asarray(p.entropy()), np.asarray(q.entropy()), rtol=1e-6)
    even = three.from_logits(ops.asarray([[0.0, -np.inf, 0.0]])), two.from_logits(ops.asarray([[0.0, 0.0]]))
    np.testing.assert_allclose(np.asarray(p.kl(even[0])), np.asarray(q.kl(even[1])), rtol=1e-6)

    def objective(c: type[Distribution], chosen: int) -> Callable[[Any], Any]:
        return lambda x: ops.sum(c(x).entropy() + c(x).logp(ops.asarray([chosen])))

    (got,) = gradients(objective(three, 2), [ops.asarray(masked)])
    (want,) = gradients(objective(two, 1), [ops.asarray(free)])
    np.testing.assert_allclose(np.asarray(got)[:, [0, 2]], np.asarray(want), rtol=1e-5)
    assert np.asarray(got)[0, 1] == 0.0


@pytest.mark.parametrize("space", SPACES)
def test_mode_is_the_most_probable_action(ops: Ops, space: str) -> None:
    rng = np.random.default_rng(4)
    logits = draw_logits(space, (5,), rng)
    distribution = distribution_class(SPACES[space], ops).from_logits(ops.asarray(logits))
    best = np.asarray(distribution.logp(distribution.mode()))
    oracle = distribution_class(SPACES[space], numpy_ops).from_logits(logits)
    for _ in range(20):
        assert (best >= oracle.logp(oracle.sample(rng)) - 1e-5).all()


# Shapes.


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        ("categorical", (5, 1)),
        ("categorical", (1,)),
        ("categorical", ()),
        ("multi-categorical", (5,)),
        ("multi-categorical", (5, 1)),
        ("multi-categorical", (1, 3)),
        ("gaussian", (5, 1)),
        ("gaussian", (3,)),
        ("gaussian", (5, 3, 1)),
    ],
)
def test_actions_that_would_broadcast_are_refused(ops: Ops, space: str, wrong: tuple[int, ...]) -> None:
    bound = distribution_class(SPACES[space], ops)
    distribution = bound.from_logits(ops.zeros((5, bound.input_dim)))
    with pytest.raises(BatchError, match="'actions' has shape") as refusal:
        distribution.logp(ops.zeros(wrong))
    assert refusal.value.facts == {"column": "actions", "expected": (5, *bound.action_shape), "found": wrong}


@pytest.mark.parametrize("space", SPACES)
def test_logits_of_another_width_are_refused(ops: Ops, space: str) -> None:
    bound = distribution_class(SPACES[space], ops)
    with pytest.raises(BatchError, match="'action_dist_inputs' has shape"):
        bound.from_logits(ops.zeros((5, bound.input_dim + 1)))


@pytest.mark.parametrize("space", SPACES)
def test_kl_to_another_shape_is_refused(ops: Ops, space: str) -> None:
    bound = distribution_class(SPACES[space], ops)
    five, one = (bound.from_logits(ops.zeros((n, bound.input_dim))) for n in (5, 1))
    with pytest.raises(BatchError, match="expected \\(5, "):
        five.kl(one)


@pytest.mark.parametrize("space", SPACES)
def test_a_class_is_bound_to_the_ops_it_was_asked_for(ops: Ops, space: str) -> None:
    bound = distribution_class(SPACES[space], ops)
    assert bound.ops is ops
    assert bound is distribution_class(SPACES[space], ops)
    assert bound is not distribution_class(SPACES[space], numpy_ops)
