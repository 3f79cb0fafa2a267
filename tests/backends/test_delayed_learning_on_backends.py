"""Noise, target networks that move with each gradient step and delayed optimizers: numpy's numbers in every mode."""

import pytest
from delayed_learning import ByHand, delayed_batch, delayed_config, delayed_learner
from learning import digest, largest_difference
from threads import on_all

from plugrad.learner.snapshot import digest as digest_of

MODES = ["none", "forward_train", "complete_update"]
CASES = {
    "each second step": {},
    "each step": {"policy_delay": 1, "target_network_update_freq": 0},
    "third and fifth": {"policy_delay": 3, "target_network_update_freq": 5, "tau": 1.0},
    "accumulated": {"accumulate": 2},
    "skipped": {"nonfinite": "skip"},
}


@pytest.mark.cross_product
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_every_mode_computes_what_is_written_out_by_hand(backend, mode, case):
    learner = delayed_learner(backend, compile=mode, **CASES[case])
    by_hand = ByHand(learner)
    for n, number in enumerate((6, 1, 5)):
        # Minibatch 1 of 2 is spoiled: `skip` leaves it out each time it comes.
        batch = delayed_batch(16, seed=n, spoiled=[11] if case == "skipped" else ())
        learner.update(batch, num_total_minibatches=number)
        by_hand.update(batch, number + number % by_hand.config.accumulate)
        by_hand.check(learner)
    assert learner.update_mode.startswith(mode), learner.update_mode
    assert by_hand.num_moves > 1
    assert by_hand.num_pi_steps > 1


def test_learners_of_a_group_are_one(backend):
    config = delayed_config(backend, compile="auto", num_epochs=3, shuffle_batch_per_epoch=True)
    learners, one = [config.build_learner() for _ in range(2)], config.build_learner()
    for n in range(2):
        batch = delayed_batch(21, seed=n)
        one.update(batch)
        errors = on_all(learners, lambda learner, batch=batch: learner.update(batch))
        assert not any(isinstance(each, Exception) for each in errors), errors
    assert len({digest_of(each) for each in learners}) == 1
    parts = ["rl_module", "targets", "optimizer"]
    assert largest_difference(learners[0].get_state(parts), one.get_state(parts)) < 1e-6


@pytest.mark.parametrize("mode", MODES[::2])
def test_a_checkpoint_in_the_middle_of_a_delay(backend, mode, tmp_path):
    learner = delayed_learner(backend, compile=mode, policy_delay=3)
    learner.update(delayed_batch(), num_total_minibatches=4)
    path = learner.save_to_path(tmp_path / "saves")
    again = delayed_learner(backend, compile=mode, policy_delay=3, seed=2)
    reference = delayed_learner("numpy", policy_delay=3, seed=3)
    for each in (again, reference):
        each.restore_from_path(path)
    assert digest(again.get_state()) == digest(learner.get_state())
    for each in (learner, again, reference):
        each.update(delayed_batch(seed=1), num_total_minibatches=5)
    assert digest(again.get_state()) == digest(learner.get_state())
    parts = ["rl_module", "targets", "optimizer"]
    assert largest_difference(learner.get_state(parts), reference.get_state(parts)) < 1e-5
