"""Actions between a module and an environment: rows of ACTIONS, what `env.step` takes, and random ones."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from hypothesis import given
from hypothesis import strategies as st

from plugrad import numpy_ops
from plugrad.action_rows import action_dtype, action_parts, action_rows, action_shape
from plugrad.distributions import distribution_class
from plugrad.policy.actions import (
    action_converter,
    first_action,
    random_action_sampler,
    stack_actions,
    unstack_actions,
)
from plugrad.types import Array

seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
whole_dtypes = st.sampled_from([np.int64, np.int32, np.uint8])


@st.composite
def multi_discretes(draw: Any) -> MultiDiscrete:
    shape = draw(shapes.filter(bool))
    rng = np.random.default_rng(draw(seeds))
    start = rng.integers(0, 4, shape)
    return MultiDiscrete(rng.integers(1, 5, shape), dtype=draw(whole_dtypes), start=start)


@st.composite
def boxes(draw: Any, dtypes: Any = (np.float32, np.float64, np.float16, np.uint8, np.int64)) -> Box:
    shape, rng = draw(shapes), np.random.default_rng(draw(seeds))
    low = rng.integers(0, 3, shape)
    dtype = draw(st.sampled_from(dtypes))
    return Box(low.astype(dtype), (low + rng.integers(1, 9, shape)).astype(dtype), dtype=dtype)


leaves = st.one_of(
    st.builds(Discrete, st.integers(1, 5), start=st.integers(-3, 3)),
    multi_discretes(),
    st.builds(MultiBinary, shapes.filter(bool)),
    boxes(),
)
action_spaces = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(Tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(Dict)
    ),
    max_leaves=4,
)


def drawn_rows(space: Space[Any], rows: int, seed: int) -> Array:
    rng, bound = np.random.default_rng(seed), distribution_class(space, numpy_ops)
    return bound.from_logits(rng.normal(size=(rows, bound.input_dim)).astype(np.float32)).sample(rng)


def take(space: Space[Any], actions: Any, n: int) -> Any:
    """Action `n` of a batch, by gymnasium."""
    return list(gym.vector.utils.iterate(gym.vector.utils.batch_space(space, 3), actions))[n]


@given(space=action_spaces, seed=seeds)
def test_actions_of_a_policy_are_in_the_space(space: Space[Any], seed: int) -> None:
    rows = drawn_rows(space, 3, seed)
    assert rows.shape == (3, *action_shape(space))
    assert rows.dtype == action_dtype(space)
    actions = action_converter(space)(rows)
    assert all(space.contains(take(space, actions, n)) for n in range(3)), actions
    assert space.contains(first_action(space, actions))
    for part, values in zip(action_parts(space), _arrays(space, actions), strict=True):
        assert values.dtype == part.space.dtype, part


def _arrays(space: Any, value: Any) -> list[Any]:
    if isinstance(space, Dict):
        return [each for key, part in space.spaces.items() for each in _arrays(part, value[key])]
    if isinstance(space, Tuple):
        return [each for n, part in enumerate(space.spaces) for each in _arrays(part, value[n])]
    return [value]


@given(space=action_spaces, seed=seeds)
def test_rows_of_an_environments_actions_give_these_actions_again(space: Space[Any], seed: int) -> None:
    many = gym.vector.utils.batch_space(space, 3)
    many.seed(seed % 2**31)
    actions = many.sample()
    rows = action_rows(space, actions)
    assert (rows.shape, rows.dtype) == ((3, *action_shape(space)), action_dtype(space))
    again = action_converter(space)(rows)
    for found, expected in zip(_arrays(space, again), _arrays(space, actions), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(action_rows(space, again), rows)


@given(space=action_spaces, seed=seeds)
def test_random_actions_are_in_the_space_and_determined_by_the_seed(space: Space[Any], seed: int) -> None:
    draw, same = (random_action_sampler(space, 3, np.random.default_rng(seed)) for _ in range(2))
    for _ in range(2):
        rows = draw()
        assert (rows.shape, rows.dtype) == ((3, *action_shape(space)), action_dtype(space))
        np.testing.assert_array_equal(rows, same())
        actions = action_converter(space)(rows)
        assert all(space.contains(take(space, actions, n)) for n in range(3))


@given(space=action_spaces, seed=seeds, steps=st.integers(0, 3))
def test_actions_that_are_saved_are_bit_for_bit_the_actions_that_were_taken(
    space: Space[Any], seed: int, steps: int
) -> None:
    space.seed(seed % 2**31)
    actions = [space.sample() for _ in range(steps)]
    again = list(unstack_actions(space, stack_actions(space, actions)))
    assert len(again) == steps
    for found, expected in zip(again, actions, strict=True):
        for one, other in zip(_arrays(space, found), _arrays(space, expected), strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize(
    ("space", "row", "action"),
    [
        (Box(0, 9, (3,), np.uint8), [2.4, 2.6, -3.0], [2, 3, 0]),
        (Box(-(2**63), 2**63 - 1, (2,), np.int64), [1e30, -1e30], [2**63 - 1024, -(2**63) + 1024]),
        (Box(0, 1, (2,), bool), [0.4, 7.0], [False, True]),
        (Box(-0.1, 0.7, (2,), np.float64), [-5.0, 5.0], [-0.1, 0.7]),
        (
            MultiDiscrete([[200, 2], [3, 4]], dtype=np.uint8, start=[[50, 0], [0, 9]]),
            [[199, 1], [2, 3]],
            [[249, 1], [2, 12]],
        ),
        (Discrete(3, start=-7), 2, -5),
    ],
)
def test_actions_are_rounded_clipped_and_shifted(space: Space[Any], row: Any, action: Any) -> None:
    found = action_converter(space)(np.asarray([row], action_dtype(space)))
    assert found.dtype == space.dtype
    assert found[0].tolist() == action
    assert space.contains(found[0])
