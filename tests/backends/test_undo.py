"""`undo=False`: no copy of the weights, and after a failed update the learner refuses to go on until it is restored."""

import numpy as np
import pytest

from plugrad import hookimpl
from plugrad.errors import BatchError, CheckpointError, ConfigError, NonFiniteError, NotUndoneError
from plugrad.testing.tiny_learners import (
    ActorCriticLearner,
    digest,
    tiny_batch,
    tiny_config,
    tiny_learner,
    weights_of,
)


class FailsAtLast(ActorCriticLearner):
    """Raises after the steps of an update, while `fails`."""

    fails = False

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        if self.fails:
            raise ZeroDivisionError("after the steps")


def failed_learner(backend, path):
    """A learner whose update failed and was not undone; its checkpoint is from before it."""
    learner = tiny_learner(backend, FailsAtLast, undo=False)
    learner.update(tiny_batch())
    learner.save_to_path(path)
    learner.fails = True
    with pytest.raises(ZeroDivisionError) as caught:
        learner.update(tiny_batch(seed=1))
    assert any("undo=False" in note for note in caught.value.__notes__)
    learner.fails = False
    return learner


def test_after_a_failed_update_without_undo_every_update_act_and_save_raises(backend, tmp_path):
    learner = failed_learner(backend, tmp_path / "saved")
    weights = weights_of(learner)
    for call in (
        lambda: learner.update(tiny_batch()),
        lambda: learner.compute_actions(tiny_batch()["obs"]),
        lambda: learner.compute_values(tiny_batch()["obs"]),
        lambda: learner.get_policy(),
        lambda: learner.get_state(),
        lambda: learner.set_state({}),
        lambda: learner.save_to_path(tmp_path / "saved"),
        lambda: learner.restore_from_path(tmp_path / "saved", component="rl_module"),
    ):
        with pytest.raises(NotUndoneError, match=r"restore_from_path.*ZeroDivisionError: after the steps"):
            call()
    np.testing.assert_array_equal(weights_of(learner), weights)


def test_restoring_a_checkpoint_makes_it_train_as_if_nothing_had_failed(backend, tmp_path):
    learner = failed_learner(backend, tmp_path / "saved")
    with pytest.raises(CheckpointError):
        learner.restore_from_path(tmp_path / "nowhere")
    with pytest.raises(NotUndoneError):
        learner.update(tiny_batch())
    learner.restore_from_path(tmp_path / "saved")
    other = tiny_learner(backend, FailsAtLast)
    other.update(tiny_batch())
    np.testing.assert_array_equal(weights_of(learner), weights_of(other))
    learner.update(tiny_batch(seed=1))
    other.update(tiny_batch(seed=1))
    np.testing.assert_array_equal(weights_of(learner), weights_of(other))


def test_a_batch_that_is_refused_before_training_changes_nothing_and_stops_nothing(backend):
    learner = tiny_learner(backend, undo=False)
    other = tiny_learner(backend)
    with pytest.raises(BatchError):
        learner.update({"obs": tiny_batch()["obs"][:, :1]})
    learner.update(tiny_batch())
    other.update(tiny_batch())
    np.testing.assert_array_equal(weights_of(learner), weights_of(other))


def test_a_step_that_is_not_finite_says_nothing_of_an_undo(backend):
    learner = tiny_learner(backend, undo=False)
    batch = {**tiny_batch(), "value_targets": np.full(16, np.nan, np.float32)}
    with pytest.raises(NonFiniteError) as caught:
        learner.update(batch)
    assert "was undone" not in str(caught.value)
    with pytest.raises(NotUndoneError):
        learner.update(tiny_batch())


def test_with_undo_a_failed_update_changes_nothing_and_stops_nothing(backend):
    learner = tiny_learner(backend, FailsAtLast)
    before = weights_of(learner)
    learner.fails = True
    with pytest.raises(ZeroDivisionError):
        learner.update(tiny_batch())
    np.testing.assert_array_equal(weights_of(learner), before)
    learner.fails = False
    learner.update(tiny_batch())


def test_an_update_without_undo_copies_no_variable(backend):
    class Copies(ActorCriticLearner):
        copied = 0

        def _snapshot_variables(self, variables):
            self.copied += len(variables)
            return super()._snapshot_variables(variables)

    learner = tiny_learner(backend, Copies, undo=False)
    learner.copied = 0
    learner.update(tiny_batch())
    assert learner.copied == 0


def test_a_group_of_learners_refuses_undo_false(backend):
    config = tiny_config(backend, undo=False).learners(num_learners=2)
    with pytest.raises(ConfigError, match="undo=False"):
        config.build_learner_group()


class LoadsAndFails:
    """Loads weights into the module that the update does not train, and raises when it ends."""

    def __init__(self):
        self.copied = 0

    @hookimpl(wrapper=True)
    def snapshot_variables(self, variables):
        self.copied += len(variables)
        return (yield)

    @hookimpl
    def update_begun(self, learner):
        self.before_load = self.copied
        learner.set_weights({"b": learner.get_weights()["a"]})

    @hookimpl
    def update_ended(self):
        raise ZeroDivisionError


def test_a_failed_update_undoes_its_modules_and_what_a_listener_loaded_into_another(backend):
    plugin = LoadsAndFails()
    learner = tiny_learner(backend, plugins=[plugin], modules=("a", "b"))
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError):
        learner.update({"a": tiny_batch()})
    assert digest(learner.get_state()) == before
    assert 0 < plugin.before_load < plugin.copied, "the other module was not left out of the first copy"
