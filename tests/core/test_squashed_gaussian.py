"""Laws of the squashed Gaussian, by numpy in float64. No framework needed."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugrad import numpy_ops
from plugrad.distributions import SquashedGaussian, distribution_class, squashed_gaussian_class
from plugrad.errors import ConfigError
from plugrad.types import Array

means, log_stds = st.floats(-2.0, 2.0), st.floats(-2.0, 0.0)
lows, widths = st.floats(-3.0, 3.0), st.floats(0.1, 5.0)
seeds = st.integers(0, 2**32 - 1)
UNEVEN = gym.spaces.Box(np.asarray([-1.0, -1.0, 0.0], "f4"), np.asarray([1.0, 1.0, 3.0], "f4"))


def one_dimension(low: float, width: float) -> tuple[type[SquashedGaussian], float]:
    """The class for a Box of one dimension, and half its width."""
    space = gym.spaces.Box(low, low + width, (1,), np.float64)
    return squashed_gaussian_class(space, numpy_ops), float(space.high[0] - space.low[0]) / 2


@given(mean=means, log_std=log_stds, low=lows, width=widths)
def test_density_integrates_to_one(mean: float, log_std: float, low: float, width: float) -> None:
    """In the action's own units: over u, by the midpoint rule, with `action = centre + half_width * tanh(u)`."""
    bound, half_width = one_dimension(low, width)
    u, step = np.linspace(-7.0, 7.0, 20_000, retstep=True)
    actions = low + half_width + half_width * np.tanh(u)
    distribution = bound.from_logits(np.tile([mean, log_std], (len(u), 1)))
    density = np.exp(distribution.logp(actions[:, None])) / half_width
    assert np.sum(density * half_width / np.cosh(u) ** 2) * step == pytest.approx(1.0, abs=1e-5)


@given(seed=seeds)
def test_logp_of_an_action_is_that_of_the_noise_it_came_from(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits, noise = rng.uniform(-1.0, 1.0, (50, 6)), rng.uniform(-2.0, 2.0, (50, 3))
    distribution = squashed_gaussian_class(UNEVEN, numpy_ops).from_logits(logits)
    actions, logp = distribution.rsample_with_logp(noise)
    assert (actions == distribution.rsample(noise)).all()
    np.testing.assert_allclose(distribution.logp(actions), logp, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(distribution.mode(), distribution.rsample(0.0 * noise))


@given(seed=seeds, low=lows, width=widths)
def test_another_scale_changes_actions_and_no_logp(seed: int, low: float, width: float) -> None:
    """`logp` is the density of the action rescaled to [-1, 1]."""
    rng = np.random.default_rng(seed)
    logits, noise = rng.uniform(-1.0, 1.0, (20, 2)), rng.uniform(-2.0, 2.0, (20, 1))
    bound, half_width = one_dimension(low, width)
    unit, _ = one_dimension(-1.0, 2.0)
    actions, logp = bound.from_logits(logits).rsample_with_logp(noise)
    unit_actions, unit_logp = unit.from_logits(logits).rsample_with_logp(noise)
    np.testing.assert_allclose(actions, low + half_width * (1.0 + unit_actions), atol=1e-9)
    assert logp.tolist() == unit_logp.tolist()


@given(seed=seeds)
def test_samples_are_squashed_gaussian_samples_within_the_bounds(seed: int) -> None:
    logits = np.random.default_rng(seed).uniform(-1.0, 1.0, (200, 6)).astype(np.float32)
    gaussian = distribution_class(UNEVEN, numpy_ops).from_logits(logits)
    squashed = squashed_gaussian_class(UNEVEN, numpy_ops).from_logits(logits)
    u, actions = (each.sample(np.random.default_rng(seed)) for each in (gaussian, squashed))
    assert actions.dtype == np.float32
    assert all(map(UNEVEN.contains, actions))
    centre, half_width = (UNEVEN.high + UNEVEN.low) / 2, (UNEVEN.high - UNEVEN.low) / 2
    np.testing.assert_allclose(actions, centre + half_width * np.tanh(u), atol=1e-6)


@pytest.mark.parametrize("logits", [[0.0, -20.0], [1e4, 2.0], [-1e30, 2.0], [50.0, -20.0]])
@pytest.mark.parametrize("noise", [-6.0, 0.0, 6.0])
def test_log_slope_is_exact_where_tanh_rounds_to_one(logits: list[float], noise: float) -> None:
    """In float32, against `log(4) - 2 |u|`, to which `log(1 - tanh(u)**2)` tends, by float64."""
    bound, _ = one_dimension(-1.0, 2.0)
    narrow = np.asarray([logits], np.float32)
    actions, logp = bound.from_logits(narrow).rsample_with_logp(np.asarray([[noise]], np.float32))
    mean, log_std = narrow[0].astype(np.float64)
    u = mean + np.exp(log_std) * noise
    gaussian = -0.5 * noise**2 - log_std - 0.5 * np.log(2.0 * np.pi)
    slope = np.log(4.0) - 2.0 * (np.abs(u) + np.log1p(np.exp(-2.0 * np.abs(u))))
    assert float(logp[0]) == pytest.approx(gaussian - slope, rel=1e-6)
    assert -1.0 <= float(actions[0, 0]) <= 1.0


def test_logp_of_actions_at_the_bounds_or_beyond_is_that_of_actions_just_inside() -> None:
    distribution = squashed_gaussian_class(UNEVEN, numpy_ops).from_logits(np.zeros((4, 6), np.float32))
    inside = UNEVEN.high - 1e-6 * (UNEVEN.high - UNEVEN.low) / 2
    actions = np.asarray([UNEVEN.high, UNEVEN.high + 1.0, UNEVEN.low, inside], np.float32)
    logp = distribution.logp(actions)
    assert np.isfinite(logp).all()
    np.testing.assert_allclose(logp, logp[0], rtol=1e-2)  # float32 cannot tell 3 from 3 - 1e-7


def test_neighbours_with_equal_bounds_are_scaled_together() -> None:
    bound = squashed_gaussian_class(UNEVEN, numpy_ops)
    assert bound.runs == ((2, 0.0, 1.0), (1, 1.5, 1.5))
    assert squashed_gaussian_class(UNEVEN, numpy_ops) is bound
    assert (bound.input_dim, bound.action_shape) == (6, (3,))


def test_entropy_says_how_to_estimate_it() -> None:
    distribution = squashed_gaussian_class(UNEVEN, numpy_ops).from_logits(np.zeros((2, 6), np.float32))
    with pytest.raises(ConfigError, match=r"no entropy in closed form.*rsample_with_logp"):
        distribution.entropy()


@pytest.mark.parametrize("method", ["rsample", "rsample_with_logp"])
@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([3, 2])])
def test_discrete_actions_have_no_differentiable_samples(space: Any, method: str) -> None:
    bound = distribution_class(space, numpy_ops)
    with pytest.raises(ConfigError, match="Categorical has no differentiable samples"):
        getattr(bound.from_logits(np.zeros((2, bound.input_dim))), method)(np.zeros(2))


def bounds(low: list[float], high: list[float]) -> gym.spaces.Box:
    """A Box of float32."""
    return gym.spaces.Box(np.asarray(low, np.float32), np.asarray(high, np.float32))


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-np.inf, np.inf, (3,)),
        bounds([0.0, 0.0], [1.0, np.inf]),
        bounds([-np.inf, 0.0], [1.0, 1.0]),
        bounds([0.0, 1.0], [1.0, 1.0]),
    ],
)
def test_a_box_without_both_bounds_is_refused_with_what_to_type(space: Any) -> None:
    with pytest.raises(ConfigError, match="finite bounds") as refusal:
        squashed_gaussian_class(space, numpy_ops)
    assert str(space) in str(refusal.value)
    typed = str(refusal.value).partition("gymnasium.wrappers.TransformAction")[2]
    assert f"gymnasium.spaces.Box(-1.0, 1.0, {space.shape})" in typed


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(2),
        gym.spaces.MultiBinary(2),
        gym.spaces.Box(0, 255, (2,), np.uint8),
    ],
)
def test_other_spaces_are_refused(space: Any) -> None:
    with pytest.raises(ConfigError, match="needs a float Box") as refusal:
        squashed_gaussian_class(space, numpy_ops)
    assert str(space) in str(refusal.value)


def test_a_class_of_ones_own_is_bound_to_any_ops() -> None:
    class Fixed(SquashedGaussian):
        def logp(self, actions: Array) -> Array:
            return self.ops.sum(self.ops.zeros_like(actions), axis=-1)

    bound = Fixed.bind(numpy_ops, runs=((1, 0.0, 1.0),), input_dim=2, action_shape=(1,))
    assert bound is Fixed.bind(numpy_ops, runs=((1, 0.0, 1.0),), input_dim=2, action_shape=(1,))
    assert bound.from_logits(np.ones((3, 2))).logp(np.ones((3, 1))).tolist() == [0.0, 0.0, 0.0]
    other: Any = object()
    assert (bound.bind(other).ops, bound.bind(other).input_dim, bound.bind(other).__name__) == (
        other,
        2,
        "Fixed",
    )
