"""Gaussians of losses: `rsample`, `rsample_with_logp` and what tanh squashes, on every backend against numpy."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugrad import numpy_ops
from plugrad.distributions import distribution_class, squashed_gaussian_class
from plugrad.errors import BatchError
from plugrad.ops import Ops
from plugrad.testing.finite_differences import central_differences
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_config
from plugrad.types import Array

UNEVEN = gym.spaces.Box(np.asarray([-1.0, -1.0, 0.0], "f4"), np.asarray([1.0, 1.0, 3.0], "f4"))
"""Two runs of dimensions with equal bounds."""
CLASSES: dict[str, Callable[[Any], Any]] = {
    "gaussian": lambda ops: distribution_class(UNEVEN, ops),
    "squashed": lambda ops: squashed_gaussian_class(UNEVEN, ops),
}
TOLERANCE = 3e-6
"""Absolute; the terms of a log-density cancel."""
kinds = pytest.mark.parametrize("kind", CLASSES)


@pytest.fixture(scope="session")
def ops(backend: str) -> Ops:
    """Of a wider scope than the suites': hypothesis wants that. On the CPU, where numpy reads its tensors."""
    learner = ActorCriticLearner(config=tiny_config(backend).framework(backend, device="cpu"))
    learner.build()
    return learner.ops


def draw(leading: tuple[int, ...], seed: int, dtype: str = "float32") -> list[Array]:
    """Logits, noise, logits of other distributions, and actions 5 % within the bounds."""
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1.5, 1.5, (*leading, width)) for width in (6, 3, 6)]
    actions = UNEVEN.low + (UNEVEN.high - UNEVEN.low) * rng.uniform(0.05, 0.95, (*leading, 3))
    return [x.astype(dtype) for x in (*arrays, actions)]


def values(some_ops: Any, kind: str, *tensors: Any) -> list[Any]:
    """Everything that a loss may ask of a Gaussian."""
    logits, noise, other, actions = tensors
    p, q = (CLASSES[kind](some_ops).from_logits(x) for x in (logits, other))
    return [*p.rsample_with_logp(noise), p.rsample(noise), p.logp(actions), p.kl(q), p.mode()]


@kinds
@settings(max_examples=20)
@given(leading=st.sampled_from([(), (1,), (5,), (2, 3)]), seed=st.integers(0, 2**32 - 1))
def test_values_are_those_of_numpy(ops: Ops, kind: str, leading: tuple[int, ...], seed: int) -> None:
    """Of float64, for the same float32 inputs."""
    arrays = draw(leading, seed)
    found = values(ops, kind, *map(ops.asarray, arrays))
    wide = values(numpy_ops, kind, *(x.astype(np.float64) for x in arrays))
    for got, want in zip(map(np.asarray, found), wide, strict=True):
        assert (str(got.dtype), got.shape) == ("float32", np.shape(want))
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=TOLERANCE)


@kinds
def test_values_are_the_same_in_a_traced_program(ops: Ops, trace: Callable[..., Any], kind: str) -> None:
    arrays = draw((2, 3), 1)
    found = trace(lambda *xs: values(ops, kind, *xs), arrays)
    for want, got in zip(values(numpy_ops, kind, *arrays), found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=TOLERANCE)


@kinds
def test_gradients_are_finite_differences(ops: Ops, gradients: Callable[..., Any], kind: str) -> None:
    """Of logits, noise and other logits, through samples, log-probabilities and divergences."""
    arrays = draw((4,), 2, "float64")
    weights = np.random.default_rng(3).uniform(0.5, 1.5, 100)

    def objective(some_ops: Any, *tensors: Any) -> Any:
        flat = some_ops.concat([some_ops.reshape(x, (-1,)) for x in values(some_ops, kind, *tensors)], 0)
        return some_ops.sum(flat * some_ops.asarray(weights[: some_ops.shape(flat)[0]]))

    found = gradients(lambda *xs: objective(ops, *xs), [ops.asarray(x) for x in arrays])
    for n, (got, array) in enumerate(zip(found, arrays, strict=True)):

        def moved(flat: Array, n: int = n, shape: Any = array.shape) -> Array:
            return np.asarray([objective(numpy_ops, *arrays[:n], flat.reshape(shape), *arrays[n + 1 :])])

        expected = central_differences(moved, array.reshape(-1)).reshape(array.shape)
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-5)


@kinds
def test_samples_are_those_of_acting(ops: Ops, kind: str) -> None:
    """`sample(rng)` is `rsample` of the generator's normals, whatever ops the class is bound to."""
    logits, *_ = draw((5,), 4)
    noise = np.random.default_rng(5).standard_normal((5, 3), np.float32)
    distribution = CLASSES[kind](ops).from_logits(ops.asarray(logits))
    drawn = distribution.sample(np.random.default_rng(5))
    assert (type(drawn), str(drawn.dtype)) == (np.ndarray, "float32")
    np.testing.assert_allclose(drawn, np.asarray(distribution.rsample(ops.asarray(noise))), atol=1e-6)


@pytest.mark.parametrize("mean", [0.0, 3.0, -30.0, 1e4, -1e30])
@pytest.mark.parametrize("log_std", [-20.0, 0.0, 2.0])
def test_large_inputs_keep_values_and_gradients_finite(
    ops: Ops, gradients: Callable[..., Any], mean: float, log_std: float
) -> None:
    """In float32, with noise of 6 standard deviations."""
    logits = ops.asarray(np.asarray([[mean] * 3 + [log_std] * 3] * 4, np.float32))
    noise = ops.asarray(np.asarray([[-6.0] * 3, [0.0] * 3, [6.0] * 3, [1.0, -1.0, 0.5]], np.float32))
    bound = squashed_gaussian_class(UNEVEN, ops)
    actions, logp = bound.from_logits(logits).rsample_with_logp(noise)
    assert np.isfinite(np.asarray(logp)).all()
    assert (np.asarray(actions) >= UNEVEN.low).all()
    assert (np.asarray(actions) <= UNEVEN.high).all()

    def objective(x: Any) -> Any:
        actions, logp = bound.from_logits(x).rsample_with_logp(noise)
        return ops.sum(actions) + ops.sum(logp)

    (gradient,) = gradients(objective, [logits])
    assert np.isfinite(np.asarray(gradient)).all()


def test_logp_of_actions_at_the_bounds_and_beyond_has_finite_gradients(
    ops: Ops, gradients: Callable[..., Any]
) -> None:
    actions = np.asarray([UNEVEN.low, UNEVEN.high, UNEVEN.high + 1.0, [0.0, 0.5, 3.0]], np.float32)
    logits, *_ = draw((4,), 6)
    bound = squashed_gaussian_class(UNEVEN, ops)
    assert np.isfinite(np.asarray(bound.from_logits(ops.asarray(logits)).logp(ops.asarray(actions)))).all()
    tensors = [ops.asarray(logits), ops.asarray(actions)]
    for gradient in gradients(lambda x, taken: ops.sum(bound.from_logits(x).logp(taken)), tensors):
        assert np.isfinite(np.asarray(gradient)).all()
        assert np.asarray(gradient).any()


@kinds
@pytest.mark.parametrize("wrong", [(5, 1), (1, 3), (3,), (5, 6)])
@pytest.mark.parametrize("method", ["rsample", "rsample_with_logp"])
def test_noise_of_another_shape_is_refused(ops: Ops, kind: str, wrong: tuple[int, ...], method: str) -> None:
    distribution = CLASSES[kind](ops).from_logits(ops.zeros((5, 6)))
    with pytest.raises(BatchError, match="'noise' has shape") as refusal:
        getattr(distribution, method)(ops.zeros(wrong))
    assert refusal.value.facts == {"column": "noise", "expected": (5, 3), "found": wrong}
