"""Cutting a fragment where episodes end."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from plugrad.sampling.rollout_fragment import Chunk, split_at_episode_ends

DONE = hnp.arrays(bool, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.booleans())


@given(done=DONE)
def test_without_a_gap_every_step_is_in_one_chunk(done):
    chunks = list(split_at_episode_ends(done, np.zeros(len(done), int), num_reset_steps=0))
    covered = np.zeros(done.shape, int)
    for env, start, stop, ended in chunks:
        covered[env, start:stop] += 1
        assert done[env, stop - 1] == ended
        assert not done[env, start : stop - 1].any()
    np.testing.assert_array_equal(covered, 1)
    ends = [(chunk.stop, chunk.env) for chunk in chunks if chunk.done]
    assert ends == sorted(ends)
    assert [chunk.done for chunk in chunks] == sorted((chunk.done for chunk in chunks), reverse=True)


@given(done=DONE, first=st.lists(st.booleans(), min_size=4, max_size=4))
def test_with_a_gap_the_step_that_resets_is_in_none(done, first):
    first = np.array(first[: len(done)], int)
    done[first == 1, 0] = False  # a step that resets ends nothing, here and after every end
    for t in range(1, done.shape[1]):
        done[:, t] &= ~done[:, t - 1]
    resets = np.roll(done, 1, axis=1)
    resets[:, 0] = first
    covered = np.zeros(done.shape, int)
    for env, start, stop, ended in split_at_episode_ends(done, first, num_reset_steps=1):
        covered[env, start:stop] += 1
        assert done[env, stop - 1] == ended
    np.testing.assert_array_equal(covered, ~resets)


def test_an_example():
    done = np.array([[0, 1, 0, 0], [0, 0, 0, 1]], bool)
    assert list(split_at_episode_ends(done, np.array([0, 1]), num_reset_steps=1)) == [
        Chunk(0, 0, 2, True),
        Chunk(1, 1, 4, True),
        Chunk(0, 3, 4, False),
    ]
