"""Pieces of an update's steps: nothing is lost, and compiled programs meet one shape."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plugrad.learner.update.minibatches import LEAST_ROWS, MOST_NUMBERS, chunks, pad_rows

widths = st.sampled_from([1, 64, 1000, 1 << 14, 1 << 16])


@given(st.dictionaries(st.sampled_from("abc"), widths, min_size=1), st.integers(1, 500))
def test_pieces_are_the_steps_in_order_and_of_one_shape(widths, num_steps):
    steps = np.arange(num_steps, dtype=np.int32)[:, None]
    order = {module_id: np.broadcast_to(steps, (num_steps, width)) for module_id, width in widths.items()}
    found = [({m: each[:, :1].copy() for m, each in piece.items()}, steps) for piece, steps in chunks(order)]
    for module_id in order:
        assert np.array_equal(np.concatenate([piece[module_id][:n] for piece, n in found]), steps)
        assert len({len(piece[module_id]) for piece, _ in found}) == 1


@given(st.integers(1, 400_000), st.sampled_from([1, 16, 64]))
def test_a_piece_is_small_however_many_steps_there_are(num_steps, width):
    order = {"a": np.broadcast_to(np.int32(0), (num_steps, width))}
    for piece, steps in chunks(order):
        assert piece["a"].dtype == np.int32
        assert 0 < steps <= len(piece["a"])
        assert piece["a"].size <= MOST_NUMBERS


@given(st.integers(1, 100))
def test_rows_are_padded_by_zeros_to_a_power_of_two(rows):
    found = pad_rows(np.ones((rows, 2), np.float32))
    assert len(found) == max(LEAST_ROWS, 2 ** int(np.ceil(np.log2(rows))))
    assert (found[:rows] == 1).all()
    assert not found[rows:].any()
