"""A plugin's own state on every backend and in every compile mode: moved by programs, undone, resumed elsewhere."""

from contextlib import suppress

import needs
import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config
from plugin_state import MOMENTS, SCALE, Moments, MovingScale, UnnamedScale, sizes_after, without_numbers

from plugrad import DEFAULT_MODULE_ID, Columns, hookimpl
from plugrad.errors import ConfigError, NonFiniteError
from plugrad_ppo import PPOLearner

pytestmark = pytest.mark.cross_product

MODES = ["none", "forward_train", "complete_update", "auto"]
BATCHES = [ppo_batch(16, seed=n) for n in range(3)]


def learner_of(backend, mode, *plugins, **settings):
    config = ppo_config(backend, **{"lr": 0.01, "minibatch_size": None, "num_epochs": 2, **settings})
    learner = PPOLearner(config=config.framework(backend, compile=mode, device="cpu"), plugins=plugins)
    learner.build()
    return learner


def own(learner):
    return {
        name: np.asarray(each).tolist()
        for name, each in learner.get_state("plugin_state")["plugin_state"].items()
    }


def scale_after(numbers):
    """The scale after two steps on each of these batches."""
    return pytest.approx(sizes_after([BATCHES[n] for n in numbers for _ in range(2)]), rel=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("plugin", "name"), [(MovingScale, SCALE), (UnnamedScale, "unnamed/0")])
def test_a_loss_moves_its_scale_once_a_step_and_a_failed_update_undoes_it(backend, mode, plugin, name):
    learner = learner_of(backend, mode, plugin(), Moments())
    learner.update(BATCHES[0])
    assert own(learner)[name] == scale_after([0])
    before = digest(learner.get_state())
    with pytest.raises(NonFiniteError):
        learner.update(without_numbers(BATCHES[1]))
    assert digest(learner.get_state()) == before
    learner.update(BATCHES[1])
    learner.update(BATCHES[2])
    assert own(learner)[name] == scale_after([0, 1, 2])
    assert own(learner)[f"{MOMENTS}/count"] == 3
    assert mode == "auto" or learner.update_mode.startswith(f"{mode}:")


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_the_weights_are_those_of_the_reference_and_of_a_loss_divided_by_hand(backend, mode):
    """The loss reads the scale before it moves it, so its gradient is that of the old value."""
    reference = learner_of("numpy", "none", MovingScale(), num_epochs=1)
    learner = learner_of(backend, mode, MovingScale(), num_epochs=1)
    for batch in BATCHES:
        for each in (reference, learner):
            each.update(batch)
    expected, found = reference.get_weights(), learner.get_weights()
    for module_id, weights in expected.items():
        for name, value in weights.items():
            np.testing.assert_allclose(found[module_id][name], value, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_steps_that_are_skipped_leave_it(backend, mode):
    learner = learner_of(backend, mode, MovingScale(), nonfinite="skip")
    learner.update(BATCHES[0])
    before = own(learner)
    learner.update(without_numbers(BATCHES[1]))
    assert own(learner) == before


def test_a_run_that_is_resumed_on_another_backend_goes_on(backend, tmp_path):
    other = next(each for each in ("torch", "numpy") if each != backend)
    first = learner_of(backend, "none", MovingScale(), Moments(), num_epochs=1)
    first.update(BATCHES[0])
    first.save_to_path(tmp_path / "c")
    if other not in needs.backends_under_test():
        other = "numpy"
    second = PPOLearner.from_checkpoint(tmp_path / "c", backend=other, plugins=[MovingScale(), Moments()])
    assert own(second) == own(first)
    for each in (first, second):
        each.update(BATCHES[1])
    assert own(second)[SCALE] == pytest.approx(own(first)[SCALE], rel=1e-5)
    assert own(second)[f"{MOMENTS}/count"] == own(first)[f"{MOMENTS}/count"] == 2
    np.testing.assert_allclose(own(second)[f"{MOMENTS}/mean"], own(first)[f"{MOMENTS}/mean"], atol=1e-4)


class LaterScale:
    """Moves a scale as soon as it is registered; has nothing of its own that says so."""

    @hookimpl(wrapper=True)
    def compute_losses(self, learner, batch):
        losses = yield
        with suppress(ConfigError):  # it is not registered
            variable = learner.register_state(SCALE, 1.0)
            size = learner.ops.mean(learner.ops.abs(batch[DEFAULT_MODULE_ID][Columns.ADVANTAGES]))
            variable.assign(0.75 * variable.read() + 0.25 * size)
        return losses


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_what_is_registered_after_the_first_program_is_in_the_next(backend, mode):
    learner = learner_of(backend, mode, LaterScale())
    learner.update(BATCHES[0])
    learner.register_state(SCALE, 1.0)
    learner.update(BATCHES[1])
    learner.update(BATCHES[2])
    assert own(learner)[SCALE] == scale_after([1, 2])
