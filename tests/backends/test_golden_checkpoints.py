"""Checkpoints of every release open on each backend, act as they did, and train on to the same weights."""

import golden
import pytest


@pytest.mark.parametrize("name", golden.names())
def test_a_checkpoint_of_any_release_acts_and_trains_as_it_did(backend, name):
    golden.assert_goes_on(name, backend)
