"""Random streams: a function of seed and names, and of nothing else."""

import os
import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plugrad.rng_streams import fresh_seed, stream

names = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), min_size=1, max_size=3
)
seeds = st.integers(0, 2**63 - 1)


@given(seeds, names)
def test_equal_seeds_and_names_give_equal_streams(seed, of):
    np.testing.assert_array_equal(stream(seed, *of).random(3), stream(seed, *of).random(3))


@given(st.tuples(seeds, names), st.tuples(seeds, names))
def test_another_seed_or_name_gives_another_stream(a, b):
    same = stream(a[0], *a[1]).random(2).tolist() == stream(b[0], *b[1]).random(2).tolist()
    assert same == (a == b)


def test_names_are_kept_apart():
    found = {stream(0, *each).random() for each in (("ab",), ("a", "b"), ("b", "a"), ("a/b",), ("",))}
    assert len(found) == 5


def test_a_stream_is_the_same_in_every_process_and_release():
    """The numbers are part of what a seed means: a change of them changes every run."""
    code = (
        "from plugrad.rng_streams import stream; "
        "print(stream(1, 'p', 'weights').bit_generator.random_raw(2).tolist())"
    )
    expected = stream(1, "p", "weights").bit_generator.random_raw(2).tolist()
    assert expected == [4652171106118147777, 7913528995431987984]
    for salt in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str(expected)


def test_a_fresh_seed_is_new_each_time_and_fits_a_signed_integer():
    found = {fresh_seed() for _ in range(20)}
    assert len(found) == 20
    assert all(0 <= seed < 2**63 for seed in found)
    stream(found.pop(), "p")
