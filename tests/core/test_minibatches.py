"""The cyclic rule: RLlib's, as a law over all sizes."""

from math import ceil

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plugrad.batch.sequences import SampleCount
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.update.minibatches import MinibatchSpec, minibatch_indices
from plugrad.rng_streams import stream

sizes = st.integers(1, 40)
epochs = st.integers(1, 4)


def cut_up(rows: dict[str, int], cut: MinibatchSpec, seed: int = 0) -> dict[str, np.ndarray]:
    units = {module_id: SampleCount(number, number) for module_id, number in rows.items()}
    return minibatch_indices(units, cut, {module_id: stream(seed, module_id) for module_id in rows})


def rllibs(rows: dict[str, int], size: int, num_epochs: int) -> dict[str, list[list[int]]]:
    """RLlib 2.60, utils/minibatch_utils.py, MiniBatchCyclicIterator: a cursor per module, until all are covered."""
    start, covered = dict.fromkeys(rows, 0), dict.fromkeys(rows, 0)
    found: dict[str, list[list[int]]] = {module_id: [] for module_id in rows}
    while min(covered.values()) < num_epochs:
        for module_id, number in rows.items():
            minibatch, cursor = [], start[module_id]
            while len(minibatch) < size:
                minibatch.append(cursor)
                cursor += 1
                if cursor == number:
                    cursor, covered[module_id] = 0, covered[module_id] + 1
            start[module_id] = cursor
            found[module_id].append(minibatch)
    return found


@pytest.mark.parametrize(
    ("rows", "size", "num_epochs", "total", "count"),
    [
        (64, 25, 1, 0, 3),
        (64, 25, 2, 0, 6),
        (64, 64, 1, 0, 1),
        (64, None, 1, 0, 1),
        (64, None, 3, 0, 3),
        (64, 25, 1, 7, 7),
        (64, None, 2, 5, 5),
        (1, 1, 1, 0, 1),
    ],
)
def test_the_numbers_of_the_contract(rows, size, num_epochs, total, count):
    found = cut_up({"p": rows}, MinibatchSpec(size, num_epochs, num_total_minibatches=total))["p"]
    assert (found.shape, found.dtype) == ((count, size or rows), np.int32)


@given(st.dictionaries(st.sampled_from("abc"), sizes, min_size=1), sizes, epochs)
def test_the_minibatches_are_rllibs(rows, size, num_epochs):
    assume(size <= max(rows.values()))
    found = cut_up(rows, MinibatchSpec(size, num_epochs))
    assert {module_id: each.tolist() for module_id, each in found.items()} == rllibs(rows, size, num_epochs)


@given(st.dictionaries(st.sampled_from("abc"), sizes, min_size=1), sizes, epochs, st.booleans())
def test_every_pass_has_every_row_once_and_no_minibatch_is_short(rows, size, num_epochs, shuffle):
    assume(size <= max(rows.values()))
    found = cut_up(rows, MinibatchSpec(size, num_epochs, shuffle))
    count = ceil(num_epochs * max(rows.values()) / size)
    for module_id, number in rows.items():
        assert found[module_id].shape == (count, size)
        walked = found[module_id].ravel()
        passes = [walked[n : n + number] for n in range(0, len(walked), number)]
        for each in passes[:-1]:
            assert sorted(each) == list(range(number))
        assert len(set(passes[-1])) == len(passes[-1])
        assert len(passes[:-1]) + (len(passes[-1]) == number) >= num_epochs


@given(sizes, st.integers(1, 10), epochs, st.integers(1, 4), st.booleans())
def test_a_step_of_several_minibatches_has_the_rows_of_one_that_is_as_wide(
    rows, size, num_epochs, parts, shuffle
):
    assume(size * parts <= rows)
    found = cut_up({"p": rows}, MinibatchSpec(size, num_epochs, shuffle, accumulate=parts))["p"]
    one_by_one = cut_up(
        {"p": rows}, MinibatchSpec(size, num_total_minibatches=len(found) * parts, shuffle=shuffle)
    )["p"]
    assert len(found) == ceil(ceil(num_epochs * rows / size) / parts)
    minibatches = [step[n::parts] for step in found for n in range(parts)]
    np.testing.assert_array_equal(minibatches, one_by_one)


@given(sizes, st.integers(1, 4))
def test_without_a_size_a_step_is_the_batch_in_parts(rows, parts):
    found = cut_up({"p": rows}, MinibatchSpec(None, 3, accumulate=parts))["p"]
    for step in found:
        assert set(np.bincount(step, minlength=rows)) == {1 if rows >= parts else parts}, "rows count alike"
        assert all(len(step[n::parts]) for n in range(parts)), "no mean over no rows"
    assert len(found) == 3


@given(sizes, sizes)
def test_without_a_size_every_module_gives_all_its_rows(a, b):
    found = cut_up({"a": a, "b": b}, MinibatchSpec(None, num_epochs=2, shuffle=True))
    assert found["a"].tolist() == [list(range(a))] * 2
    assert found["b"].tolist() == [list(range(b))] * 2


def test_a_shuffle_is_new_for_each_pass_and_repeats_with_the_seed():
    cut = MinibatchSpec(32, num_epochs=2, shuffle=True)
    found = cut_up({"p": 32}, cut)["p"]
    assert found[0].tolist() != found[1].tolist() != list(range(32))
    np.testing.assert_array_equal(found, cut_up({"p": 32}, cut)["p"])
    assert found.tolist() != cut_up({"p": 32}, cut, seed=1)["p"].tolist()


def test_a_module_is_shuffled_alike_whoever_is_beside_it():
    cut = MinibatchSpec(4, shuffle=True)
    alone, beside = cut_up({"a": 8}, cut), cut_up({"b": 8, "a": 8}, cut)
    np.testing.assert_array_equal(alone["a"], beside["a"])
    assert beside["a"].tolist() != beside["b"].tolist()


@pytest.mark.parametrize("cut", [MinibatchSpec(4), MinibatchSpec(None, num_epochs=3, shuffle=True)])
def test_a_stream_that_is_not_needed_is_not_drawn_from(cut):
    own = stream(0, "p")
    minibatch_indices({"p": SampleCount(8, 8)}, cut, {"p": own})
    assert own.bit_generator.state == stream(0, "p").bit_generator.state


def test_a_stream_is_drawn_from_once_for_each_pass():
    own, other = stream(0, "p"), stream(0, "p")
    minibatch_indices({"p": SampleCount(8, 8)}, MinibatchSpec(4, num_epochs=3, shuffle=True), {"p": own})
    for _ in range(3):
        other.permutation(8)
    assert own.bit_generator.state == other.bit_generator.state


def test_a_minibatch_above_the_widest_module_is_refused():
    with pytest.raises(BatchError) as refused:
        cut_up({"a": 3, "b": 5}, MinibatchSpec(6))
    assert str(refused.value) == (
        "minibatch_size=6 is above the 5 rows of module 'b': give more rows or a smaller minibatch_size"
    )
    assert refused.value.facts == {"module_id": "b", "expected": 6, "found": 5}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"minibatch_size": 0}, "minibatch_size=0: must be a whole number and at least 1"),
        ({"minibatch_size": 2.5}, "minibatch_size=2.5: must be a whole number"),
        ({"num_epochs": 0}, "num_epochs=0: must be a whole number and at least 1"),
        ({"num_epochs": -1}, "num_epochs=-1"),
        ({"num_total_minibatches": -1}, "num_total_minibatches=-1: must be a whole number and at least 0"),
    ],
)
def test_a_cut_that_cannot_be_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        MinibatchSpec(**settings)
