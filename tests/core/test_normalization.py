"""Running statistics equal those of all rows at once, however the rows came, and a state continues them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from plugrad.errors import BatchError, RestoreMismatchError
from plugrad.policy.normalization import ObservationNormalizer

ROWS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 40), st.integers(1, 3)),
    elements=st.floats(-1e6, 1e6, allow_nan=False, width=64),
)


@given(rows=ROWS, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_statistics_are_those_of_all_rows_at_once(rows, cuts):
    normalizer = ObservationNormalizer(rows.shape[1:])
    for part in np.split(rows, sorted(cuts)):
        normalizer.update(part)
    assert normalizer.count == len(rows)
    np.testing.assert_allclose(normalizer.mean, rows.mean(axis=0), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(normalizer.variance, rows.var(axis=0), rtol=1e-6, atol=1e-2)


@given(rows=ROWS, cut=st.integers(0, 40))
def test_merging_two_equals_counting_both(rows, cut):
    left, right, both = (ObservationNormalizer(rows.shape[1:]) for _ in range(3))
    left.update(rows[:cut])
    right.update(rows[cut:])
    both.update(rows)
    state = right.get_state()
    left.merge(state["count"], state["mean"], state["m2"])
    assert left.count == both.count
    np.testing.assert_allclose(left.mean, both.mean, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(left.variance, both.variance, rtol=1e-6, atol=1e-2)


def test_a_single_row_counts_as_any_other_bit_for_bit():
    rows = np.random.default_rng(0).normal(3.0, 2.0, (200, 4))
    one, both = ObservationNormalizer((4,)), ObservationNormalizer((4,))
    for row in rows:
        one.update(row[None])
        both.merge(1, row[None].mean(axis=0), np.square(row[None] - row).sum(axis=0))
    for name, value in one.get_state().items():
        np.testing.assert_array_equal(value, both.get_state()[name])
    np.testing.assert_allclose(one.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(one.variance, rows.var(axis=0), rtol=1e-12)


def test_a_small_spread_around_a_large_mean_survives():
    """Where `mean(x^2) - mean(x)^2` loses every digit."""
    rows = 1e8 + np.random.default_rng(0).normal(size=(10_000, 1))
    normalizer = ObservationNormalizer((1,))
    for part in np.split(rows, 1250):
        normalizer.update(part)
    np.testing.assert_allclose(normalizer.variance, rows.var(axis=0), rtol=1e-6)


def test_normalised_rows_have_mean_0_variance_1_and_are_clipped():
    rows = np.random.default_rng(0).normal(3, 5, size=(5000, 2))
    normalizer = ObservationNormalizer((2,))
    normalizer.update(rows)
    normalized = normalizer.normalize(rows)
    assert normalized.dtype == np.float32
    np.testing.assert_allclose(normalized.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(normalized.std(axis=0), 1, atol=1e-5)
    far = normalizer.normalize(np.array([[1e9, -1e9]]))
    np.testing.assert_array_equal(far, [[10, -10]])
    assert ObservationNormalizer((2,), clip=3.0).normalize(np.array([[8.0, 2.0]])).tolist() == [[3, 2]]


def test_constants_become_zero_and_nothing_seen_changes_nothing():
    normalizer = ObservationNormalizer((2,))
    np.testing.assert_allclose(normalizer.normalize(np.array([[0.5, -2.0]])), [[0.5, -2.0]])
    normalizer.update(np.full((4, 2), 7.0))
    np.testing.assert_array_equal(normalizer.normalize(np.full((1, 2), 7.0)), [[0, 0]])


def test_the_input_is_not_changed():
    rows = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    before = rows.copy()
    normalizer = ObservationNormalizer((2,))
    normalizer.update(rows)
    normalizer.normalize(rows)
    np.testing.assert_array_equal(rows, before)


def test_images_of_bytes_are_good_observations():
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    normalizer = ObservationNormalizer((4, 4, 3))
    normalizer.update(images)
    np.testing.assert_allclose(normalizer.mean, images.mean(axis=0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_and_counts_nothing(bad):
    normalizer = ObservationNormalizer((2,))
    normalizer.update(np.arange(8.0).reshape(4, 2))
    before = normalizer.get_state()
    with pytest.raises(BatchError, match="row 1 is not finite") as caught:
        normalizer.update(np.array([[0, 0], [bad, 0], [-bad, 0]]))
    assert caught.value.facts["row"] == 1
    np.testing.assert_equal(normalizer.get_state(), before)


def test_a_state_continues_bit_for_bit_and_is_a_copy():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    one, other = ObservationNormalizer((3,)), ObservationNormalizer((3,))
    one.update(rows[:10])
    state = one.get_state()
    other.set_state(state)
    for normalizer in (one, other):
        normalizer.update(rows[10:])
    np.testing.assert_equal(one.get_state(), other.get_state())
    assert state["count"] == 10
    np.testing.assert_array_equal(state["mean"], normalizer_of(rows[:10]).mean)


def normalizer_of(rows: np.ndarray) -> ObservationNormalizer:
    normalizer = ObservationNormalizer(rows.shape[1:])
    normalizer.update(rows)
    return normalizer


def test_a_state_of_another_shape_is_refused_and_changes_nothing():
    normalizer = normalizer_of(np.arange(6.0).reshape(3, 2))
    before = normalizer.get_state()
    with pytest.raises(RestoreMismatchError, match=r"shape \(3,\).*shape \(2,\)"):
        normalizer.set_state(ObservationNormalizer((3,)).get_state())
    np.testing.assert_equal(normalizer.get_state(), before)


def test_a_frozen_copy_neither_learns_nor_follows():
    normalizer = normalizer_of(np.arange(6.0).reshape(3, 2))
    frozen = normalizer.frozen_copy()
    before = frozen.get_state()
    frozen.update(np.full((5, 2), 100.0))
    normalizer.update(np.full((5, 2), 100.0))
    np.testing.assert_equal(frozen.get_state(), before)
    assert normalizer.count == 8
