"""A checkpoint crosses from one framework to another in the middle of a training, Adam's moments included."""

import needs
import pytest
from learning import digest, largest_difference, ppo_batch, ppo_config

from plugrad import Learner

NEXT = {"torch": "jax", "jax": "tf2", "tf2": "torch"}
UPDATES = 100
STEPS = 4  # of Adam per update, 16 rows each

pytestmark = needs.backends(*NEXT)


def built(backend):
    settings = {"minibatch_size": 16, "lr": 3e-4, "shuffle_batch_per_epoch": True}
    return ppo_config(backend, hiddens=(64, 64), **settings).build_learner()


def updated(learner, numbers):
    for n in numbers:
        learner.update(ppo_batch(16 * STEPS, seed=n))
    return learner


@pytest.mark.parametrize("source", NEXT)
def test_a_hundred_updates_on_each_side_end_at_the_same_weights(source, tmp_path):
    learner = built(source)
    start = learner.get_weights()
    updated(learner, range(UPDATES)).save_to_path(tmp_path)
    assert largest_difference(learner.get_weights(), start) > 0.01
    sides = (source, NEXT[source])
    stayed, crossed = (Learner.from_checkpoint(tmp_path, backend=backend) for backend in sides)
    assert digest(crossed.get_state()) == digest(stayed.get_state())
    for n in range(UPDATES, 2 * UPDATES):
        for each in (stayed, crossed):
            updated(each, [n])
        if n == UPDATES:
            assert largest_difference(crossed.get_weights(), stayed.get_weights()) < 1e-5
    assert largest_difference(crossed.get_weights(), stayed.get_weights()) < 1e-4
    assert crossed.get_state(["counters", "streams"]) == stayed.get_state(["counters", "streams"])


def test_a_training_that_goes_round_all_frameworks_is_the_one_that_stayed(tmp_path):
    stayed, crossing = built("torch"), built("torch")
    start, backend, leg = stayed.get_weights(), "torch", UPDATES // 4
    for number in range(4):
        for learner in (stayed, crossing):
            updated(learner, range(number * leg, (number + 1) * leg))
        crossing.save_to_path(tmp_path / str(number))
        backend = NEXT[backend]
        crossing = Learner.from_checkpoint(tmp_path / str(number), backend=backend)
        assert crossing.config.backend == backend
    assert backend == "jax", "once round, and one more step"
    parts = ["rl_module", "optimizer"]
    assert largest_difference(stayed.get_weights(), start) > 0.01
    assert largest_difference(crossing.get_state(parts), stayed.get_state(parts)) < 1e-5
    assert crossing.get_state(["counters", "streams"]) == stayed.get_state(["counters", "streams"])
