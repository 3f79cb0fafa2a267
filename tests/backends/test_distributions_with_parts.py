"""Distributions of actions with several axes or parts: as flat ones, and as sums over the parts, on every backend."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from plugrad import numpy_ops
from plugrad.action_rows import action_parts
from plugrad.distributions import MultiDistribution, distribution_class, squashed_gaussian_class
from plugrad.errors import BatchError, ConfigError
from plugrad.ops import Ops
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_config
from plugrad.types import Array


@pytest.fixture(scope="session")
def ops(backend: str) -> Ops:
    """Of a wider scope than the suites': hypothesis wants that. On the CPU, where numpy reads its tensors."""
    learner = ActorCriticLearner(config=tiny_config(backend).framework(backend, device="cpu"))
    learner.build()
    return learner.ops


MIXED = Dict(
    turn=Discrete(3, start=5),
    force=Box(-1.0, 2.0, (2, 2)),
    deep=Tuple([MultiBinary([2, 1]), MultiDiscrete([[2, 3], [3, 3]])]),
)
DISCRETE = Tuple([Discrete(2), MultiDiscrete([3, 4])])
FLAT: list[tuple[Space[Any], Space[Any]]] = [
    (Box(-1.0, 2.0, (2, 3)), Box(-1.0, 2.0, (6,))),
    (Box(-1.0, 2.0, ()), Box(-1.0, 2.0, (1,))),
    (MultiDiscrete([[2, 3], [3, 4]]), MultiDiscrete([2, 3, 3, 4])),
    (MultiBinary([2, 2]), MultiDiscrete([2, 2, 2, 2])),
]
"""A space, and one of the same numbers with one axis."""
seeds = st.integers(0, 2**32 - 1)
leading_shapes = st.sampled_from([(), (5,), (2, 3)])
each_pair = pytest.mark.parametrize(("space", "flat"), FLAT, ids=str)


def draw(space: Space[Any], leading: tuple[int, ...], seed: int) -> tuple[Array, Array, Array]:
    """Inputs, those of others, and actions."""
    rng, bound = np.random.default_rng(seed), distribution_class(space, numpy_ops)
    inputs = rng.uniform(-2.0, 2.0, (2, *leading, bound.input_dim)).astype(np.float32)
    return inputs[0], inputs[1], bound.from_logits(inputs[0]).sample(rng)


def values(ops: Ops, space: Space[Any], inputs: Any, other: Any, actions: Any) -> list[Any]:
    """Log-probabilities, entropies and divergences."""
    p, q = (distribution_class(space, ops).from_logits(ops.asarray(each)) for each in (inputs, other))
    return [p.logp(ops.asarray(actions)), p.entropy(), p.kl(q)]


@each_pair
@settings(max_examples=5)
@given(leading=leading_shapes, seed=seeds)
def test_several_axes_are_as_one(
    ops: Ops, space: Space[Any], flat: Space[Any], leading: tuple[int, ...], seed: int
) -> None:
    inputs, other, actions = draw(space, leading, seed)
    assert actions.shape == (*leading, *(space.shape or ()))
    rows = actions.reshape(*leading, -1)
    for found, expected in zip(
        values(ops, space, inputs, other, actions), values(ops, flat, inputs, other, rows), strict=True
    ):
        assert np.asarray(found).shape == leading
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    mode, flat_mode = (
        np.asarray(distribution_class(each, ops).from_logits(ops.asarray(inputs)).mode())
        for each in (space, flat)
    )
    np.testing.assert_array_equal(mode, flat_mode.reshape(actions.shape))


@pytest.mark.parametrize("space", [MIXED, DISCRETE], ids=["mixed", "discrete"])
@settings(max_examples=5)
@given(leading=leading_shapes, seed=seeds)
def test_parts_add_up(ops: Ops, space: Space[Any], leading: tuple[int, ...], seed: int) -> None:
    inputs, other, actions = draw(space, leading, seed)
    expected, start, modes = [np.zeros(leading)] * 3, 0, []
    for part in action_parts(space):
        bound = distribution_class(part.space, numpy_ops)
        columns = slice(start, start + bound.input_dim)
        taken = actions[..., part.start : part.stop].reshape((*leading, *(part.space.shape or ())))
        terms = values(numpy_ops, part.space, inputs[..., columns], other[..., columns], taken)
        expected = [each + term for each, term in zip(expected, terms, strict=True)]
        modes.append(bound.from_logits(inputs[..., columns]).mode().reshape((*leading, -1)))
        start += bound.input_dim
    for found, wanted in zip(values(ops, space, inputs, other, actions), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5)
    mode = np.asarray(distribution_class(space, ops).from_logits(ops.asarray(inputs)).mode())
    assert mode.dtype.kind == actions.dtype.kind  # of 64 bits or 32
    np.testing.assert_allclose(mode, np.concatenate(modes, -1), rtol=1e-6)


@pytest.mark.parametrize(
    "space", [MIXED, DISCRETE, FLAT[0][0], FLAT[2][0]], ids=["mixed", "discrete", "box", "choices"]
)
def test_gradients_are_finite_differences(ops: Ops, gradients: Callable[..., Any], space: Space[Any]) -> None:
    inputs, other, actions = draw(space, (2,), seed=3)
    inputs, other = inputs.astype(np.float64), other.astype(np.float64)
    if actions.dtype == np.float32:
        actions = actions.astype(np.float64)

    def objective(some_ops: Any, x: Any) -> Any:
        logp, entropy, kl = values(some_ops, space, x, other, actions)
        return some_ops.sum(logp + 2.0 * entropy + 3.0 * kl)

    expected = np.zeros_like(inputs)
    for place in np.ndindex(inputs.shape):
        shift = np.zeros_like(inputs)
        shift[place] = 1e-6
        expected[place] = (objective(numpy_ops, inputs + shift) - objective(numpy_ops, inputs - shift)) / 2e-6
    (found,) = gradients(lambda x: objective(ops, x), [ops.asarray(inputs)])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("space", [MIXED, FLAT[0][0], FLAT[3][0]], ids=["mixed", "box", "binary"])
def test_they_work_in_a_traced_program(ops: Ops, trace: Callable[..., Any], space: Space[Any]) -> None:
    arrays = draw(space, (2, 3), seed=4)

    def program(some_ops: Any, inputs: Any, other: Any, actions: Any) -> list[Any]:
        mode = distribution_class(space, some_ops).from_logits(inputs).mode()
        return [*values(some_ops, space, inputs, other, actions), some_ops.cast(mode, "float32")]

    for wanted, found in zip(
        program(numpy_ops, *arrays), trace(lambda *xs: program(ops, *xs), arrays), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_squashed_gaussians_of_several_axes_are_as_one(ops: Ops) -> None:
    low = np.arange(-6.0, 0.0, dtype=np.float32)
    spaces = [Box(low.reshape(shape), np.float32(low + 1.5).reshape(shape)) for shape in ((2, 3), (6,))]
    rng = np.random.default_rng(5)
    inputs, noise = rng.uniform(-1, 1, (4, 12)).astype(np.float32), rng.normal(size=(4, 6)).astype(np.float32)
    found = []
    for space in spaces:
        bound = squashed_gaussian_class(space, ops)
        dist = bound.from_logits(ops.asarray(inputs))
        actions, logp = dist.rsample_with_logp(ops.asarray(noise.reshape(4, *space.shape)))
        assert np.asarray(actions).shape == np.asarray(dist.mode()).shape == (4, *space.shape)
        drawn = dist.sample(np.random.default_rng(1))
        again = bound.unscale_actions(bound.scale_actions(ops.asarray(drawn)))
        np.testing.assert_allclose(np.asarray(again), drawn, rtol=1e-5)
        found.append(
            [np.ravel(each) for each in (actions, logp, dist.mode(), drawn, dist.logp(ops.asarray(drawn)))]
        )
    for several, one in zip(*found, strict=True):
        np.testing.assert_array_equal(several, one)


def test_rows_that_are_no_actions_and_samples_that_there_are_none_of_are_refused(ops: Ops) -> None:
    dist = distribution_class(MIXED, ops).from_logits(
        ops.zeros((5, distribution_class(MIXED, ops).input_dim))
    )
    assert isinstance(dist, MultiDistribution)
    with pytest.raises(BatchError, match="'actions' has shape") as refusal:
        dist.logp(ops.zeros((5, 10)))
    assert refusal.value.facts["expected"] == (5, 11)
    with pytest.raises(ConfigError, match="no differentiable samples"):
        dist.rsample(ops.zeros((5, 11)))
