"""Replay, in numpy: n-step transitions, replay buffers, and the sum tree, against their definitions."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning import digest

from plugrad import Columns, SingleAgentEpisode
from plugrad.errors import BatchError, ConfigError
from plugrad.replay import (
    CircularBuffer,
    NStepTransitions,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    transitions,
)
from plugrad.replay.sum_tree import SumTree
from plugrad_dqn import DQNConfig

SEEDS = st.integers(0, 2**16)


def episode(steps: int, rng: np.random.Generator, terminated=False, truncated=False) -> SingleAgentEpisode:
    return SingleAgentEpisode(
        observations=np.arange(steps + 1, dtype=np.float32)[:, None] + rng.integers(1000) * 100,
        actions=rng.integers(3, size=steps),
        rewards=rng.normal(size=steps).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        id_="7",
    )


# --- transitions ---


@given(
    steps=st.integers(1, 12), n=st.integers(1, 5), gamma=st.floats(0, 1), terminated=st.booleans(), seed=SEEDS
)
def test_transitions_are_their_definition_step_by_step(steps, n, gamma, terminated, seed):
    whole = episode(steps, np.random.default_rng(seed), terminated, not terminated)
    found = transitions(whole, n, gamma)
    for t in range(steps):
        k = min(n, steps - t)
        expected = sum(gamma**i * whole.rewards[t + i] for i in range(k))
        assert found[Columns.REWARDS][t] == pytest.approx(expected, rel=1e-5, abs=1e-6)
        np.testing.assert_array_equal(found[Columns.OBS][t], whole.observations[t])
        np.testing.assert_array_equal(found[Columns.NEXT_OBS][t], whole.observations[t + k])
        assert found[Columns.TERMINATEDS][t] == (terminated and t + k == steps)
        assert found["n_step"][t] == k
    np.testing.assert_array_equal(found[Columns.ACTIONS], whole.actions)


def test_rows_may_each_have_a_number_of_steps_of_their_own():
    """RLlib's `n_step=(2, 5)`: all numbers between them, the same ones wherever the episode is cut or a run resumes."""
    whole = episode(400, np.random.default_rng(0), True, False)
    once = NStepTransitions([2, 5], 0.9, seed=7)([whole])
    counts = np.bincount(once["n_step"][:-5].astype(int), minlength=6)
    assert list(np.flatnonzero(counts)) == [2, 3, 4, 5]
    assert counts[2:].min() > 70  # 99 are expected of each
    for n in (2, 3, 4, 5):
        own, fixed = once["n_step"] == n, transitions(whole, n, 0.9)
        for name in (Columns.REWARDS, Columns.NEXT_OBS, Columns.TERMINATEDS):
            np.testing.assert_array_equal(once[name][own][:-5], fixed[name][own][:-5])
    first, second = NStepTransitions([2, 5], 0.9, seed=7), NStepTransitions([2, 5], 0.9, seed=7)
    pieces = []
    for maker, start, stop in ((first, 0, 133), (second, 133, 400)):
        chunk = SingleAgentEpisode(
            observations=whole.observations[start : stop + 1],
            actions=whole.actions[start:stop],
            rewards=whole.rewards[start:stop],
            terminated=stop == 400,
            id_="7",
            t_started=start,
        )
        pieces.append(maker([chunk]))
        second.set_state(first.get_state())
    for name in (Columns.REWARDS, Columns.NEXT_OBS, Columns.N_STEP):
        np.testing.assert_array_equal(np.concatenate([each[name] for each in pieces]), once[name])
    other = NStepTransitions([2, 5], 0.9, seed=8)([whole])
    assert (other["n_step"] != once["n_step"]).any()


@pytest.mark.parametrize("given", [[2], [5, 2], [2, 3, 4], [0, 2], [2, 2.5], [[1, 2], 3], "2-5"])
def test_a_range_of_steps_that_is_none_is_refused(given):
    assert DQNConfig().training(n_step=(2, 5)).n_step == [2, 5]
    assert DQNConfig.from_toml(DQNConfig().training(n_step=(2, 5)).to_toml()).n_step == [2, 5]
    with pytest.raises(ConfigError, match="n_step"):
        DQNConfig().training(n_step=given)


@given(
    cuts=st.lists(st.integers(1, 11), unique=True, max_size=5),
    n=st.integers(1, 5),
    ended=st.booleans(),
    seed=SEEDS,
)
def test_an_episode_in_chunks_gives_the_rows_of_the_whole_one_each_once(cuts, n, ended, seed):
    whole = episode(12, np.random.default_rng(seed), terminated=ended)
    expected = transitions(whole, n, 0.9)
    edges = [0, *sorted(cuts), 12]
    make, rows = NStepTransitions(n, 0.9), []
    for a, b in pairwise(edges):
        chunk = SingleAgentEpisode(
            observations=whole.observations[a : b + 1],
            actions=whole.actions[a:b],
            rewards=whole.rewards[a:b],
            terminated=ended and b == 12,
            id_="7",
        )
        rows.append(make([chunk]))
        resumed = NStepTransitions(n, 0.9)  # what waits survives a checkpoint
        resumed.set_state(make.get_state())
        make = resumed
    number = 12 if ended else 12 - (n - 1)
    for name, values in expected.items():
        np.testing.assert_array_equal(
            np.concatenate([each[name] for each in rows]), values[:number], err_msg=name
        )


def test_a_sample_that_was_lost_joins_no_steps():
    whole = episode(12, np.random.default_rng(0))
    make = NStepTransitions(3, 0.9)

    def rows(a, b):
        steps = {"actions": whole.actions[a:b], "rewards": whole.rewards[a:b]}
        chunk = SingleAgentEpisode(observations=whole.observations[a : b + 1], id_="7", t_started=a, **steps)
        resumed = NStepTransitions(3, 0.9)
        resumed.set_state(make.get_state())
        np.testing.assert_equal(resumed([chunk]), found := make([chunk]))
        return found

    expected = transitions(whole, 3, 0.9)
    for (a, b), own in (((0, 4), [0, 1]), ((4, 5), [2]), ((7, 10), [7]), ((10, 12), [8, 9])):
        np.testing.assert_equal(rows(a, b), {name: values[own] for name, values in expected.items()})


# --- buffers ---


def numbered(first: int, count: int) -> dict[str, np.ndarray]:
    return {
        "x": np.arange(first, first + count),
        "y": np.arange(first, first + count, dtype=np.float32)[:, None] * [1, 2],
    }


def buffers(capacity: int, seed: int = 0) -> list[ReplayBuffer]:
    return [
        ReplayBuffer(capacity, np.random.default_rng(seed)),
        PrioritizedReplayBuffer(capacity, np.random.default_rng(seed), alpha=0.6, beta=0.4),
    ]


@given(capacity=st.integers(1, 9), counts=st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_a_buffer_holds_the_last_rows(capacity, counts):
    for buffer in buffers(capacity):
        added = 0
        for count in counts:
            buffer.add(numbered(added, count))
            added += count
        assert len(buffer) == min(added, capacity)
        rows, places = buffer.sample(200)
        assert set(rows["x"]) <= set(range(added - len(buffer), added))
        np.testing.assert_array_equal(rows["y"], rows["x"][:, None] * [1, 2])
        assert set(places) <= set(range(len(buffer)))


@pytest.mark.parametrize("kind", [0, 1])
def test_an_empty_buffer_refuses_to_draw_and_its_stream_stays(kind):
    buffer, other = buffers(4)[kind], buffers(4)[kind]
    with pytest.raises(ValueError, match="the replay buffer is empty: add rows first"):
        buffer.sample(3)
    for each in (buffer, other):
        each.add(numbered(0, 4))
    np.testing.assert_array_equal(buffer.sample(9)[1], other.sample(9)[1])


def test_uniform_draws_find_every_row_alike():
    buffer = buffers(100)[0]
    buffer.add(numbered(0, 100))
    rows, _ = buffer.sample(100_000)
    assert np.bincount(rows["x"], minlength=100) / 1000 == pytest.approx(np.ones(100), abs=0.15)
    assert Columns.WEIGHTS not in rows


def test_prioritised_draws_and_weights_are_those_of_the_paper():
    buffer = PrioritizedReplayBuffer(8, np.random.default_rng(0), alpha=0.5, beta=0.7)
    buffer.add(numbered(0, 4))
    priorities = np.array([1.0, 4.0, 9.0, 0.0])
    buffer.update_priorities(np.arange(4), priorities)
    share = np.sqrt(priorities + 1e-6) / np.sqrt(priorities + 1e-6).sum()
    rows, places = buffer.sample(100_000)
    assert np.bincount(places, minlength=4) / 100_000 == pytest.approx(share, abs=0.01)
    weights = (4 * share) ** -0.7
    expected = weights[places] / weights[places].max()
    np.testing.assert_allclose(rows[Columns.WEIGHTS], expected, rtol=1e-5)
    buffer.add(numbered(4, 1))  # a new row has the largest priority seen
    assert np.mean(buffer.sample(50_000)[1] == 4) == pytest.approx(3 / (1 + 2 + 3 + 0.001 + 3), abs=0.01)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("added", [3, 5, 13])
def test_a_buffer_goes_on_from_its_state(kind, added):
    buffer, other = buffers(5)[kind], buffers(5, seed=1)[kind]
    buffer.add(numbered(0, added))
    if kind:
        buffer.update_priorities(np.array([0, 2]), np.array([3.0, 0.5]))
    buffer.sample(7)
    other.set_state(buffer.get_state())
    for each in (buffer, other):
        each.add(numbered(added, 2))
    for found, expected in zip(other.sample(50), buffer.sample(50), strict=True):
        np.testing.assert_equal(found, expected)
    assert digest(other.get_state()) == digest(buffer.get_state())
    empty = buffers(5)[kind]
    empty.set_state(buffer.get_state(rows=False))
    assert len(empty) == 0


def prioritized(alpha: float) -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(8, np.random.default_rng(0), alpha=alpha, beta=0.4)


@pytest.mark.parametrize(("before", "after"), [(0.5, 1.0), (1.0, 0.25), (0.6, 0.0), (0.5, 0.5)])
def test_priorities_are_the_same_with_another_alpha(before, after):
    buffer, resumed, expected = prioritized(before), prioritized(after), prioritized(after)
    for each in (buffer, expected):
        each.add(numbered(0, 4))
        each.update_priorities(np.arange(3), np.array([9.0, 0.5, 2.0]))
    resumed.set_state(buffer.get_state())
    for each in (resumed, expected):
        each.add(numbered(4, 1))
    found, wanted = resumed.get_state(), expected.get_state()
    np.testing.assert_allclose(found["priorities"], wanted["priorities"], rtol=1e-12)
    assert found["largest"] == wanted["largest"]


@pytest.mark.parametrize(
    ("priorities", "said"),
    [
        ([1.0, np.nan], "priorities from 0 up, which are finite; found nan"),
        ([np.inf, 1.0], "found inf"),
        ([1.0, -0.5], "found -0.5"),
        ([1.0], r"one priority for each of 2 places; found shape \(1,\)"),
    ],
)
def test_priorities_that_are_none_are_refused_and_change_nothing(priorities, said):
    buffer = prioritized(0.5)
    buffer.add(numbered(0, 4))
    before = digest(buffer.get_state())
    with pytest.raises(BatchError, match=said):
        buffer.update_priorities(np.array([0, 2]), np.array(priorities))
    buffer.update_priorities(np.zeros(0, np.int64), np.zeros(0))
    assert digest(buffer.get_state()) == before


@pytest.mark.parametrize("uniform", [ReplayBuffer(8, np.random.default_rng(1)), prioritized(0.0)])
def test_rows_without_priorities_get_the_largest(uniform):
    uniform.add(numbered(0, 4))
    resumed = prioritized(0.5)
    resumed.set_state(uniform.get_state())
    resumed.add(numbered(4, 1))
    np.testing.assert_array_equal(resumed.get_state()["priorities"], np.ones(5))
    resumed.update_priorities(np.array([1]), np.array([4.0]))
    rows, _ = resumed.sample(50_000)
    assert np.bincount(rows["x"]) / 50_000 == pytest.approx(np.array([1, 2, 1, 1, 1]) / 6, abs=0.02)


# --- the tree ---


@given(
    values=st.lists(st.one_of(st.just(0.0), st.floats(0.01, 100)), min_size=1, max_size=40).filter(any),
    seed=SEEDS,
)
def test_a_mass_finds_the_leaf_where_the_running_sum_exceeds_it(values, seed):
    tree = SumTree(len(values))
    tree[np.arange(len(values))] = np.array(values)
    assert tree.total == pytest.approx(sum(values))
    masses = np.random.default_rng(seed).random(50) * tree.total
    found = tree.find(masses)
    assert (np.array(values)[found] > 0).all()
    sums = np.cumsum(values)
    assert (masses <= sums[found] + 1e-9).all()
    assert (masses >= sums[found] - np.array(values)[found] - 1e-9).all()
    assert tree.find(np.array([np.nextafter(tree.total, 0)]))[0] == np.flatnonzero(values)[-1]


@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0, 10)), min_size=1, max_size=30))
def test_the_last_value_of_a_leaf_counts(changes):
    tree, expected = SumTree(13), np.zeros(13)
    for leaf, value in changes:
        expected[leaf] = value
    tree[np.array([leaf for leaf, _ in changes])] = np.array([value for _, value in changes])
    np.testing.assert_array_equal(tree[np.arange(13)], expected)
    assert tree.total == pytest.approx(expected.sum())


# --- the circular buffer ---


@given(
    num_batches=st.integers(1, 5),
    turns=st.integers(1, 4),
    plan=st.lists(st.booleans(), max_size=60),
    seed=SEEDS,
)
def test_a_circular_buffer_hands_out_each_of_the_last_batches_a_few_times(num_batches, turns, plan, seed):
    buffer = CircularBuffer[int](num_batches, turns, np.random.default_rng(seed))
    left: dict[int, int] = {}  # turns of each batch, the oldest first
    for n, adds in enumerate(plan):
        if adds:
            oldest = next(iter(left)) if len(left) == num_batches else None
            assert buffer.add(n) == oldest
            left.pop(oldest, None)
            left[n] = turns
        elif left:
            found, new = buffer.sample(), [each for each in left if left[each] == turns]
            assert found in left
            assert not new or found == new[0], "a batch that nobody has learned from comes first"
            left[found] -= 1
            left = {each: number for each, number in left.items() if number}
        assert len(buffer) == len(left)
        assert buffer.is_full == (len(left) == num_batches)
    if not left:
        with pytest.raises(IndexError, match="add a batch first"):
            buffer.sample()


def test_a_circular_buffer_draws_each_turn_with_equal_probability():
    counts = np.zeros(3)
    for seed in range(600):
        buffer = CircularBuffer[int](3, 3, np.random.default_rng(seed))
        for n in range(3):
            buffer.add(n)
        first = [buffer.sample() for _ in range(3)]
        assert first == [0, 1, 2]
        counts[buffer.sample()] += 1
    assert counts.min() > 150


@given(seed=SEEDS, before=st.integers(0, 12))
def test_a_circular_buffer_goes_on_from_its_state(seed, before):
    buffers = [CircularBuffer[int](3, 4, np.random.default_rng(each)) for each in (seed, 7)]
    for n in range(3):
        buffers[0].add(n)
    for _ in range(min(before, 11)):
        buffers[0].sample()
    buffers[1].set_state(buffers[0].get_state())
    for _ in range(12 - min(before, 11)):
        assert buffers[0].sample() == buffers[1].sample()
    smaller = CircularBuffer[int](1, 4, np.random.default_rng(0))
    buffers[0].add(8)
    buffers[0].add(9)
    smaller.set_state(buffers[0].get_state())
    assert [smaller.sample() for _ in range(4)] == [9] * 4
