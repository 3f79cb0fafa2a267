"""`register_optimizer(every=n)`: what is refused, and what a state has of it."""

import numpy as np
import pytest
from delayed_learning import DelayedLearner, delayed_batch, delayed_learner
from learning import digest

from plugrad import DEFAULT_MODULE_ID
from plugrad.errors import OptimizerError, RestoreMismatchError
from plugrad.optimizers import SGD

P = DEFAULT_MODULE_ID


def registering(optimizer, every):
    class Registering(DelayedLearner):
        def configure_optimizers_for_module(self, module_id, config=None):
            params = self.get_parameters(self.module[module_id])
            self.register_optimizer(module_id=module_id, optimizer=optimizer, params=params, every=every)

    return Registering


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "2"])
def test_only_whole_numbers_from_1_up(every):
    with pytest.raises(OptimizerError, match=r"every=.*from 1 up"):
        delayed_learner(learner_class=registering(SGD(), every))


def test_an_optimizer_of_another_learner_is_refused():
    optimizer = SGD()
    delayed_learner(learner_class=registering(optimizer, 2))
    with pytest.raises(OptimizerError, match="registered already"):
        delayed_learner(learner_class=registering(optimizer, 2))


def test_users_get_the_optimizer_that_they_registered():
    optimizer = SGD()
    learner = delayed_learner(learner_class=registering(optimizer, 2))
    assert learner.get_optimizer() is optimizer
    learner._set_optimizer_lr(optimizer, 0.25)
    assert learner._get_optimizer_lr(optimizer) == 0.25


def test_a_state_has_the_count_of_steps():
    learner, other = delayed_learner(policy_delay=3), delayed_learner(policy_delay=3, seed=2)
    learner.update(delayed_batch(8), num_total_minibatches=5)
    state = learner.get_state()
    assert state["optimizer"][f"{P}_pi"]["slots"]["gradient_steps_since"] == 2.0
    assert state["targets"][P]["gradient_steps_since"] == 1.0
    assert "gradient_steps_since" not in state["optimizer"][f"{P}_qf"]["slots"]
    other.set_state(state)
    assert digest(other.get_state()) == digest(learner.get_state())


@pytest.mark.parametrize(("saved", "now"), [(1, 3), (3, 1), (3, 2)])
def test_a_state_goes_on_where_every_is_another_one_now(saved, now):
    learner = delayed_learner(policy_delay=saved, target_network_update_freq=saved)
    learner.update(delayed_batch(8), num_total_minibatches=2)
    other = delayed_learner(policy_delay=now, target_network_update_freq=now)
    other.set_state(learner.get_state())
    assert digest(other.get_weights()) == digest(learner.get_weights())
    before, waited = other.get_weights()[P]["pi"], 2 if saved > 1 else 0
    for n in range(now - waited if waited < now else 1):
        np.testing.assert_array_equal(other.get_weights()[P]["pi"], before, err_msg=str(n))
        other.update(delayed_batch(8), num_total_minibatches=1)
    assert not np.array_equal(other.get_weights()[P]["pi"], before)


def test_a_state_without_a_slot_is_refused():
    learner = delayed_learner()
    state = learner.get_state()
    del state["optimizer"][f"{P}_pi"]["slots"]["m"]
    with pytest.raises(RestoreMismatchError, match=r"missing: .*slots/m"):
        learner.set_state(state)
