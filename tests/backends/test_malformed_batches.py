"""500 malformed batches per backend through `update`: an error by name, no change, and the next good batch trains."""

from typing import Any

import pytest
from hypothesis import given, settings
from learning import digest, ppo_config, with_modules
from malformed import FOUND_BY_THE_CHECK, KINDS, MODULES, ROWS, Malformed, assert_named, good, malformed

from plugrad.errors import BatchError

# What only the forward pass and the loss can see is found while a program is made, which takes its time.
NUMBERS = {kind: 38 if kind in FOUND_BY_THE_CHECK else 16 for kind in KINDS}


@pytest.fixture(scope="module")
def learner(backend: str) -> Any:
    config = ppo_config(backend, use_kl_loss=True, minibatch_size=ROWS, shuffle_batch_per_epoch=True)
    learner = with_modules(config, *MODULES).build_learner()
    learner.update(good())
    return learner


def test_there_are_500() -> None:
    assert sum(NUMBERS.values()) >= 500


@pytest.mark.parametrize("kind", KINDS)
def test_a_malformed_batch_is_refused_and_the_next_good_one_trains(learner: Any, kind: str) -> None:
    state = learner.get_state()
    before = digest(state)

    @settings(max_examples=NUMBERS[kind])
    @given(wrong=malformed(kind))
    def refused(wrong: Malformed) -> None:
        with pytest.raises(BatchError) as caught:
            learner.update(wrong.batch)
        assert_named(wrong, caught.value)
        assert digest(learner.get_state()) == before

    refused()
    learner.update(good())
    after = digest(learner.get_state())
    assert after != before
    learner.set_state(state)
    learner.update(good())
    assert digest(learner.get_state()) == after
