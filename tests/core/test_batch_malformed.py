"""Whatever is wrong with a batch, the check says where, what was expected and what was found: 10,200 batches."""

import itertools

import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from malformed import FOUND_BY_THE_CHECK, MODULES, ROWS, assert_named, good, malformed

from plugrad import RLModule
from plugrad.batch import by_module, check
from plugrad.errors import BatchError

PER_KIND = 850
LEARNER = {each: RLModule(observation_space=Box(-9, 9, (3,)), action_space=Discrete(2)) for each in MODULES}


def test_the_batch_that_all_others_are_made_from_is_good():
    assert check(by_module(good()), LEARNER) == dict.fromkeys(MODULES, ROWS)
    assert PER_KIND * len(FOUND_BY_THE_CHECK) >= 10_000


@pytest.mark.counts
@pytest.mark.parametrize("kind", FOUND_BY_THE_CHECK)
def test_every_malformed_batch_is_refused_by_name(kind):
    number = itertools.count()

    @settings(max_examples=PER_KIND)
    @given(wrong=malformed(kind))
    def refused(wrong):
        with pytest.raises(BatchError) as caught:
            check(by_module(wrong.batch), LEARNER)
        assert_named(wrong, caught.value)
        next(number)

    refused()
    assert next(number) >= PER_KIND
