"""A checkpoint crosses from one framework to the other in the middle of a training, Adam's moments included."""

import needs
import pytest
from learning import digest, largest_difference, ppo_batch, ppo_config, quick

from plugrad import Learner

PAIR = ("torch", "tf2")
UPDATES = 100
STEPS = 4  # of Adam per update, 16 rows each

pytestmark = needs.backends(*PAIR)


def save_after_a_hundred_updates(source, path):
    config = ppo_config(source, hiddens=(64, 64), minibatch_size=16, lr=3e-4, shuffle_batch_per_epoch=True)
    learner = quick(config).build_learner()
    start = learner.get_weights()
    for n in range(UPDATES):
        learner.update(ppo_batch(16 * STEPS, seed=n))
    assert largest_difference(learner.get_weights(), start) > 0.01
    learner.save_to_path(path)


@pytest.mark.parametrize("source", PAIR)
def test_a_hundred_updates_on_each_side_end_at_the_same_weights(source, tmp_path):
    save_after_a_hundred_updates(source, tmp_path)
    other = PAIR[source == "torch"]
    stayed, crossed = (Learner.from_checkpoint(tmp_path, backend=backend) for backend in (source, other))
    assert digest(crossed.get_state()) == digest(stayed.get_state())
    for n in range(UPDATES, 2 * UPDATES):
        for learner in (stayed, crossed):
            learner.update(ppo_batch(16 * STEPS, seed=n))
        if n == UPDATES:
            assert largest_difference(crossed.get_weights(), stayed.get_weights()) < 1e-5
    assert largest_difference(crossed.get_weights(), stayed.get_weights()) < 1e-4
    assert crossed.get_state(["counters", "streams"]) == stayed.get_state(["counters", "streams"])
