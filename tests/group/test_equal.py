"""n learners are one: whatever the shares, the numbers are those of one learner on the whole batch."""

import numpy as np
import pytest
from groups import Groups, group_config
from learning import flat, largest_difference, ppo_batch, with_modules
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, Columns
from plugrad.learner.digest import digest as digest_of

P = DEFAULT_MODULE_ID
CLOCK = {"num_env_steps_sampled_lifetime": 500}


def masked(batch):
    """With two thirds of the rows hidden, all of them in the first half."""
    rows = len(batch[Columns.OBS])
    return {**batch, Columns.LOSS_MASK: np.arange(rows) >= 2 * rows // 3}


BATCHES = {
    "even": lambda n: ({P: ppo_batch(64, seed=n)}, {}),
    "1 of 255 rows over": lambda n: ({P: ppo_batch(255, seed=n)}, {}),
    "whole": lambda n: ({P: ppo_batch(7, seed=n)}, {"minibatch_size": 7}),
    "1 row": lambda n: ({P: ppo_batch(1, seed=n)}, {"minibatch_size": 1}),
    "masked": lambda n: ({P: masked(ppo_batch(60, seed=n))}, {}),
    "exact number": lambda n: ({P: ppo_batch(64, seed=n)}, {"num_total_minibatches": 3}),
}


def close(found, expected):
    """Within 1e-6 of the largest entry of each array, or of 1."""
    found, expected = flat(found), flat(expected)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if "time/" not in name:
            np.testing.assert_allclose(found[name], value, rtol=2e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_remote_group_is_one_learner(groups: Groups, backend: str, size: int) -> None:
    group, one = groups.get(backend, size), group_config(backend).build_learner()
    for n, make in enumerate(BATCHES.values()):
        batch, settings = make(n)
        expected = one.update(batch, timesteps=CLOCK, **settings)
        results = group.update(batch, timesteps=CLOCK, **settings)
        assert len(results) == len(group) == size
        for found in results:
            close(found, expected)
        digests = group.foreach_learner(digest_of)
        assert len(set(digests)) == 1
        assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
    state = group.get_state()["learner"]
    assert state["counters"] == one.get_state()["counters"]
    assert state["streams"] == one.get_state()["streams"]


@pytest.mark.parametrize("size", [2, 3])
def test_modules_that_are_in_some_shares_only(size: int) -> None:
    config = with_modules(group_config("torch"), "a", "b", "c")
    learners, one = [config.build_learner() for _ in range(size)], config.build_learner()
    for rows in ((64, 1, 2), (1, 0, 255), (16, 16, 0)):
        batch = {name: ppo_batch(number, seed=number) for name, number in zip("abc", rows, strict=True)}
        expected = one.update(batch)
        for found in on_all(learners, lambda learner, batch=batch: learner.update(batch)):
            close(found, expected)
    assert len({digest_of(each) for each in learners}) == 1
    assert largest_difference(learners[0].get_weights(), one.get_weights()) < 1e-6
