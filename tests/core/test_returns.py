"""Returns and advantages against loops that are written from the papers, and the laws that join them."""

from itertools import pairwise
from math import inf, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from plugrad.errors import BatchError, ConfigError
from plugrad.returns import (
    generalized_advantage_estimation,
    lambda_returns,
    n_step_returns,
    returns_to_go,
    vtrace,
)

UNIT = st.floats(0, 1)
assert_close = np.testing.assert_allclose
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


@st.composite
def trajectories(draw, *extra):
    """Columns [T] or [T, N] by name, episodes one behind the other; within one, values are those of the step before."""
    shape = draw(st.sampled_from([(0,), (1,), (7,), (5, 3), (4, 2, 2)]))
    numbers, flags = arrays(np.float32, shape, elements=st.floats(-2, 2, width=32)), arrays(bool, shape)
    columns = {name: draw(numbers) for name in ("rewards", "next_values", *extra)}
    columns |= {name: draw(flags) for name in ("terminateds", "truncateds")}
    if "values" in columns:
        goes_on = ~(columns["terminateds"] | columns["truncateds"])[:-1]
        columns["next_values"][:-1][goes_on] = columns["values"][1:][goes_on]
    return columns


def episodes(columns):
    """For each environment and episode: an index of its rows, and its columns [T], last value 0 if it terminated."""
    ends = columns["terminateds"] | columns["truncateds"]
    for place in np.ndindex(ends.shape[1:]):
        stops = [t + 1 for t in range(len(ends)) if ends[(t, *place)] or t == len(ends) - 1]
        for begin, stop in pairwise([0, *stops]):
            index = (slice(begin, stop), *place)
            own = {name: values[index].astype(float) for name, values in columns.items()}
            if own["terminateds"][-1]:
                own["next_values"][-1] = 0.0
            yield index, own


def by_loop(columns, one):
    """`one(episode, t)` for every step."""
    expected = np.zeros(columns["rewards"].shape)
    for index, own in episodes(columns):
        expected[index] = [one(own, t) for t in range(len(own["rewards"]))]
    return expected


def n_step_return(own, t, n, gamma):
    """Sutton and Barto, equation 7.1, which is 7.2's Monte Carlo return where the episode is shorter."""
    stop = min(t + n, len(own["rewards"]))
    rewards = sum(gamma ** (k - t) * own["rewards"][k] for k in range(t, stop))
    return rewards + gamma ** (stop - t) * own["next_values"][stop - 1]


def mixture(own, t, gamma, lambda_):
    """Sutton and Barto, equation 12.3: n-step returns, each with the weight (1 - lambda) lambda^(n-1)."""
    steps = len(own["rewards"]) - t
    parts = [(1 - lambda_) * lambda_ ** (n - 1) * n_step_return(own, t, n, gamma) for n in range(1, steps)]
    return sum(parts) + lambda_ ** (steps - 1) * n_step_return(own, t, steps, gamma)


def advantage(own, t, gamma, lambda_):
    """Schulman et al. 2016, equation 16: the sum of (gamma lambda)^l delta_(t+l)."""
    deltas = own["rewards"] + gamma * own["next_values"] - own["values"]
    return sum((gamma * lambda_) ** (k - t) * deltas[k] for k in range(t, len(deltas)))


def vtrace_target(own, t, gamma, lambda_, rho_bar, c_bar):
    """Espeholt et al. 2018, equation 1, with the products of its traces written out."""
    rho, c = np.minimum(own["rhos"], rho_bar), lambda_ * np.minimum(own["rhos"], c_bar)
    deltas = rho * (own["rewards"] + gamma * own["next_values"] - own["values"])
    return own["values"][t] + sum(gamma ** (k - t) * prod(c[t:k]) * deltas[k] for k in range(t, len(deltas)))


# --- against the papers ---


@given(columns=trajectories(), gamma=UNIT, n=st.integers(1, 9))
def test_returns_are_those_of_the_plain_loop(columns, gamma, n):
    expected = by_loop(columns, lambda own, t: n_step_return(own, t, n, gamma))
    assert_close(n_step_returns(**columns, gamma=gamma, n=n), expected, **TOLERANCE)
    expected = by_loop(columns, lambda own, t: n_step_return(own, t, 100, gamma))
    assert_close(returns_to_go(**columns, gamma=gamma), expected, **TOLERANCE)


@given(columns=trajectories(), gamma=UNIT, lambda_=UNIT)
def test_lambda_returns_are_the_mixture_of_n_step_returns(columns, gamma, lambda_):
    expected = by_loop(columns, lambda own, t: mixture(own, t, gamma, lambda_))
    assert_close(lambda_returns(**columns, gamma=gamma, lambda_=lambda_), expected, **TOLERANCE)


@given(columns=trajectories("values"), gamma=UNIT, lambda_=UNIT)
def test_gae_is_that_of_the_plain_loop(columns, gamma, lambda_):
    advantages, targets = generalized_advantage_estimation(**columns, gamma=gamma, lambda_=lambda_)
    expected = by_loop(columns, lambda own, t: advantage(own, t, gamma, lambda_))
    assert_close(advantages, expected, **TOLERANCE)
    assert_close(targets, expected + columns["values"], **TOLERANCE)
    assert advantages.dtype == targets.dtype == np.float32


@given(
    columns=trajectories("values", "log_rhos"),
    gamma=UNIT,
    lambda_=UNIT,
    bars=st.tuples(*[st.sampled_from([0.5, 1.0, 2.0, inf])] * 3),
)
def test_vtrace_is_that_of_the_plain_loop(columns, gamma, lambda_, bars):
    columns["rhos"] = np.exp(columns.pop("log_rhos"))
    rho_bar, c_bar, pg_bar = bars
    found = vtrace(
        **columns,
        gamma=gamma,
        lambda_=lambda_,
        clip_rho_threshold=rho_bar,
        clip_c_threshold=c_bar,
        clip_pg_rho_threshold=pg_bar,
    )

    def pg_advantage(own, t):  # section 4.2
        last = t + 1 == len(own["rewards"])
        following = (
            own["next_values"][t] if last else vtrace_target(own, t + 1, gamma, lambda_, rho_bar, c_bar)
        )
        return min(pg_bar, own["rhos"][t]) * (own["rewards"][t] + gamma * following - own["values"][t])

    expected = by_loop(columns, lambda own, t: vtrace_target(own, t, gamma, lambda_, rho_bar, c_bar))
    assert_close(found.vs, expected, rtol=1e-4, atol=1e-3)
    assert_close(found.pg_advantages, by_loop(columns, pg_advantage), rtol=1e-4, atol=1e-3)


# --- laws ---


@given(columns=trajectories(), lambda_=UNIT, n=st.integers(1, 4))
def test_without_a_discount_only_the_reward_counts(columns, lambda_, n):
    for found in (
        returns_to_go(**columns, gamma=0.0),
        n_step_returns(**columns, gamma=0.0, n=n),
        lambda_returns(**columns, gamma=0.0, lambda_=lambda_),
    ):
        assert_close(found, columns["rewards"])


@given(columns=trajectories(), gamma=UNIT)
def test_lambda_0_is_one_step_and_lambda_1_the_return_to_go(columns, gamma):
    assert_close(
        lambda_returns(**columns, gamma=gamma, lambda_=0.0),
        n_step_returns(**columns, gamma=gamma, n=1),
        **TOLERANCE,
    )
    assert_close(
        lambda_returns(**columns, gamma=gamma, lambda_=1.0),
        returns_to_go(**columns, gamma=gamma),
        **TOLERANCE,
    )
    assert_close(
        n_step_returns(**columns, gamma=gamma, n=100), returns_to_go(**columns, gamma=gamma), **TOLERANCE
    )


@given(columns=trajectories("values"), gamma=UNIT, lambda_=UNIT)
def test_on_policy_vtrace_and_gae_aim_at_lambda_returns(columns, gamma, lambda_):
    of_steps = {name: each for name, each in columns.items() if name != "values"}
    expected = lambda_returns(**of_steps, gamma=gamma, lambda_=lambda_)
    on_policy = vtrace(**columns, rhos=np.ones_like(columns["rewards"]), gamma=gamma, lambda_=lambda_)
    advantages, targets = generalized_advantage_estimation(**columns, gamma=gamma, lambda_=lambda_)
    assert_close(on_policy.vs, expected, **TOLERANCE)
    assert_close(targets, expected, **TOLERANCE)
    if lambda_ == 1.0:
        assert_close(on_policy.pg_advantages, advantages, **TOLERANCE)


@given(columns=trajectories("values"), gamma=UNIT)
def test_on_policy_vtrace_with_lambda_1_is_the_n_step_return(columns, gamma):
    on_policy = vtrace(**columns, rhos=np.ones_like(columns["rewards"]), gamma=gamma)
    values = columns.pop("values")
    expected = n_step_returns(**columns, gamma=gamma, n=100)
    assert_close(on_policy.vs, expected, **TOLERANCE)
    assert_close(on_policy.pg_advantages, expected - values, **TOLERANCE)


@pytest.mark.parametrize(
    ("flag", "last"), [("terminateds", 4.0), ("truncateds", 4.0 + 0.5 * 10.0), (None, 4.0 + 0.5 * 10.0)]
)
def test_a_truncated_episode_is_bootstrapped_and_a_terminated_one_not(flag, last):
    rewards, next_values = np.float32([1, 2, 4]), np.float32([30, 20, 10])
    flags = {flag: np.array([False, False, True])} if flag else {}
    expected = [1 + 0.5 * (2 + 0.5 * last), 2 + 0.5 * last, last]
    assert_close(returns_to_go(rewards, 0.5, next_values=next_values, **flags), expected)
    assert_close(lambda_returns(rewards, next_values, 0.5, 1.0, **flags), expected)
    assert_close(
        n_step_returns(rewards, 0.5, 2, next_values=next_values, **flags), [1 + 1 + 5, *expected[1:]]
    )


def test_returns_without_values_are_sums_of_what_was_recorded():
    flags = {"truncateds": np.array([False, True, False])}
    assert_close(returns_to_go([1.0, 2.0, 4.0], 0.5, **flags), [2.0, 2.0, 4.0])
    assert_close(n_step_returns([1.0, 2.0, 4.0], 0.5, 3), [3.0, 4.0, 4.0])


def test_what_is_not_finite_stays_in_its_episode():
    columns = {
        "rewards": np.array([1.0, np.nan, 1.0]),
        "next_values": np.ones(3),
        "terminateds": np.array([True, True, False]),
    }
    values = np.zeros(3)
    for found in (
        returns_to_go(**columns, gamma=1.0),
        n_step_returns(**columns, gamma=1.0, n=2),
        lambda_returns(**columns, gamma=1.0, lambda_=1.0),
        generalized_advantage_estimation(**columns, values=values, gamma=1.0, lambda_=1.0)[0],
        vtrace(**columns, values=values, rhos=np.ones(3), gamma=1.0).vs,
    ):
        np.testing.assert_array_equal(found, [1.0, np.nan, 2.0])


def test_sums_are_float64():
    rewards = np.full(10_000, 0.1, np.float32)
    assert returns_to_go(rewards, 1.0)[0] == np.float32(rewards.astype(np.float64).sum())


def test_the_arguments_are_not_changed():
    columns = {name: np.ones(3) for name in ("rewards", "values", "next_values", "rhos")}
    vtrace(**columns, gamma=0.9, terminateds=np.array([True, False, False]))
    for each in columns.values():
        np.testing.assert_array_equal(each, 1.0)


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("values", np.zeros((3, 1)), r"values: expected shape \[3\], as rewards have, found \[3, 1\]"),
        ("next_values", np.zeros(4), r"next_values: expected shape \[3\], as rewards have, found \[4\]"),
        ("terminateds", np.array(True), r"terminateds: expected shape \[3\], as rewards have, found \[\]"),
        ("rewards", 1.0, r"rewards: expected shape \[T, \.\.\.\], found \[\]"),
    ],
)
def test_arrays_of_other_shapes_are_refused(name, given, message):
    columns = {name: np.zeros(3) for name in ("rewards", "values", "next_values")}
    with pytest.raises(BatchError, match=message) as error:
        generalized_advantage_estimation(**{**columns, name: given}, gamma=0.9, lambda_=0.9)
    assert error.value.facts["column"] == name


def test_fewer_than_one_step_is_refused():
    with pytest.raises(ConfigError, match="n=0: must be 1 or more"):
        n_step_returns(np.zeros(3), 0.9, 0)


# --- one row of numbers, and columns of several environments ---


@pytest.mark.parametrize("mean_length", [1, 4, 1000])
def test_rows_of_many_or_of_long_episodes_give_the_bits_of_a_column_of_an_environment(mean_length):
    rng = np.random.default_rng(mean_length)
    names = ("rewards", "values", "next_values", "rhos")
    rows = {name: rng.normal(size=3000).astype(np.float32) for name in names}
    rows |= {name: rng.random(3000) < 0.5 / mean_length for name in ("terminateds", "truncateds")}
    column = {name: values[:, None] for name, values in rows.items()}
    for flat, deep in zip(vtrace(**rows, gamma=0.99), vtrace(**column, gamma=0.99), strict=True):
        np.testing.assert_array_equal(flat, deep[:, 0])


def test_infinite_rewards_stay_in_their_episode():
    rewards = np.tile(np.array([1.0, np.inf, np.nan, 0.5], np.float32), 20)
    ends = np.tile(np.array([True, True, True, True]), 20)
    found = returns_to_go(rewards, 0.9, terminateds=ends)
    np.testing.assert_array_equal(found, rewards)
