"""Choosing an action distribution for a space, and the laws of its samples. No framework needed."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from plugrad import numpy_ops
from plugrad.distributions import (
    Categorical,
    DiagGaussian,
    MultiCategorical,
    MultiDistribution,
    distribution_class,
)
from plugrad.errors import ConfigError
from plugrad.types import Array

SPACES: dict[str, gym.Space[Any]] = {
    "categorical": gym.spaces.Discrete(4),
    "multi-categorical": gym.spaces.MultiDiscrete([2, 1, 3]),
    "gaussian": gym.spaces.Box(-1.0, 1.0, (3,)),
}
MANY = 100_000


def draw_many(space: str, logits: Array) -> Array:
    bound = distribution_class(SPACES[space], numpy_ops)
    return bound.from_logits(np.tile(logits, (MANY, 1))).sample(np.random.default_rng(0))


def probabilities(logits: Array) -> Any:
    return np.exp(logits) / np.exp(logits).sum()


def test_masked_choices_are_never_sampled() -> None:
    logits = np.tile(np.asarray([0.0, -np.inf, 0.0], np.float32), (10_000, 1))
    distribution = distribution_class(gym.spaces.Discrete(3), numpy_ops).from_logits(logits)
    assert set(distribution.sample(np.random.default_rng(0)).tolist()) == {0, 2}


def test_categorical_samples_have_their_probabilities() -> None:
    logits = np.asarray([0.0, 1.0, -1.0, 2.0], np.float32)
    actions = draw_many("categorical", logits)
    assert actions.dtype == np.int64
    p = probabilities(logits)
    frequencies = np.bincount(actions, minlength=4) / MANY
    assert (np.abs(frequencies - p) < 5 * np.sqrt(p * (1 - p) / MANY)).all()


def test_multi_categorical_samples_are_independent() -> None:
    logits = np.asarray([0.0, 1.0, 0.3, 0.0, 1.0, 2.0], np.float32)
    actions = draw_many("multi-categorical", logits)
    assert (actions.shape, str(actions.dtype)) == ((MANY, 3), "int64")
    assert (actions[:, 1] == 0).all()
    joint = np.outer(probabilities(logits[:2]), probabilities(logits[3:])).ravel()
    frequencies = np.bincount(actions[:, 0] * 3 + actions[:, 2], minlength=6) / MANY
    assert (np.abs(frequencies - joint) < 5 * np.sqrt(joint / MANY)).all()


def test_gaussian_samples_have_their_moments() -> None:
    mean, std = np.asarray([0.5, -2.0, 10.0]), np.asarray([0.1, 1.0, 3.0])
    logits = np.concatenate([mean, np.log(std)]).astype(np.float32)
    actions = draw_many("gaussian", logits)
    assert (actions.shape, str(actions.dtype)) == ((MANY, 3), "float32")
    z = (actions.astype(np.float64) - mean) / std
    assert (np.abs(z.mean(0)) < 5 / np.sqrt(MANY)).all()
    np.testing.assert_allclose(np.cov(z.T), np.eye(3), atol=5 * np.sqrt(2 / MANY))
    np.testing.assert_allclose((z**4).mean(0), 3.0, atol=5 * np.sqrt(96 / MANY))


@pytest.mark.parametrize("space", SPACES)
def test_equal_generators_give_equal_samples(space: str) -> None:
    bound = distribution_class(SPACES[space], numpy_ops)
    distribution = bound.from_logits(np.zeros((50, bound.input_dim), np.float32))
    one, same, another = (distribution.sample(np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert (one == same).all()
    assert (one != another).any()
    assert distribution.sample().shape == one.shape


# Choosing a class.


@pytest.mark.parametrize(
    ("space", "base", "input_dim", "action_shape"),
    [
        (gym.spaces.Discrete(4, start=-1), Categorical, 4, ()),
        (gym.spaces.MultiDiscrete([2, 3]), MultiCategorical, 5, (2,)),
        (gym.spaces.MultiDiscrete([[2, 3], [4, 1]]), MultiCategorical, 10, (2, 2)),
        (gym.spaces.MultiBinary(3), MultiCategorical, 6, (3,)),
        (gym.spaces.MultiBinary([2, 3]), MultiCategorical, 12, (2, 3)),
        (gym.spaces.Box(-1.0, 1.0, (3,), np.float64), DiagGaussian, 6, (3,)),
        (gym.spaces.Box(-1.0, 1.0, (2, 3)), DiagGaussian, 12, (2, 3)),
        (gym.spaces.Box(-1.0, 1.0, ()), DiagGaussian, 2, ()),
        (gym.spaces.Box(0, 255, (2,), np.uint8), DiagGaussian, 4, (2,)),
        (
            gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(-1.0, 1.0, (2, 2))]),
            MultiDistribution,
            10,
            (5,),
        ),
        (gym.spaces.Dict(a=gym.spaces.Dict(b=gym.spaces.MultiBinary(2))), MultiDistribution, 4, (2,)),
    ],
)
def test_class_for_a_space(space: Any, base: type, input_dim: int, action_shape: tuple[int, ...]) -> None:
    bound = distribution_class(space, numpy_ops)
    assert issubclass(bound, base)
    assert (bound.input_dim, bound.action_shape, bound.ops) == (input_dim, action_shape, numpy_ops)
    assert type(bound.input_dim) is int
    assert distribution_class(space, numpy_ops) is bound


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Text(3),
        gym.spaces.Sequence(gym.spaces.Discrete(2)),
        gym.spaces.Box(-1.0, 1.0, (2, 0)),
        gym.spaces.Tuple([]),
        gym.spaces.Dict(),
    ],
)
def test_other_spaces_are_refused_with_what_is_known(space: gym.Space[Any]) -> None:
    with pytest.raises(ConfigError, match="Known: Discrete, MultiDiscrete") as refusal:
        distribution_class(space, numpy_ops)
    assert str(space) in str(refusal.value)


def test_the_part_of_a_space_that_has_no_distribution_is_named() -> None:
    with pytest.raises(ConfigError, match="action space Text"):
        distribution_class(gym.spaces.Dict(a=gym.spaces.Discrete(2), b=gym.spaces.Text(3)), numpy_ops)
