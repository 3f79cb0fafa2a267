"""Python numbers that a traced step reads, and that change between updates: the next update has the new ones."""

import gc
import logging
import weakref

import pytest
from learning import ppo_batch, ppo_config

from plugrad import hookimpl
from plugrad.learner.update.programs import MADE_IN_VAIN

factor = 1.0
AGAIN = "the update is compiled again: "
IN_VAIN = "is compiled again and again"


class One:
    """An object of one step."""

    def __init__(self):
        self.number, self.others = 1.0, {1.0}


class Scales:
    """Multiplies each loss by an attribute, by a global, by a variable around a function and by what it makes."""

    def __init__(self):
        self.coeff = 1.0
        self.traces = 0
        around = 1.0

        def closure():
            return around

        def change(value):
            nonlocal around
            around = value

        self.closure, self.change = closure, change

    @hookimpl(wrapper=True)
    def compute_losses(self, learner, batch):
        losses = yield
        self.traces += 1
        made = One()
        self.made = weakref.ref(made.others)
        by = self.coeff * factor * self.closure() * made.number
        return {module_id: by * each for module_id, each in losses.items()}


def built(backend, mode, plugin):
    config = ppo_config(backend, minibatch_size=8, lr=0.0).framework(backend, compile=mode)
    learner = config.get_learner_class()(config=config, plugins=[plugin])
    learner.build()
    return learner


def loss(learner):
    """Of a batch that is always the same; nothing is learned, since the learning rate is 0."""
    return float(learner.update(ppo_batch(16))["default_policy"]["total_loss"])


CHANGES = {
    "attribute": lambda plugin, patch: setattr(plugin, "coeff", 0.25),
    "global": lambda plugin, patch: patch.setitem(globals(), "factor", 0.25),
    "closure": lambda plugin, patch: plugin.change(0.25),
}


@pytest.mark.parametrize("mode", ["complete_update", "forward_train", "none"])
def test_a_python_number_that_changes_counts_from_the_next_update_on(backend, mode, monkeypatch, caplog):
    if backend == "torch" and mode == "complete_update":  # compiles for 20 s: see the last test
        mode = "auto"
    plugin = Scales()
    learner = built(backend, mode, plugin)
    expected = loss(learner)
    changes = [*CHANGES.values()]
    if mode == "complete_update":
        changes = changes[:1]  # some seconds to compile for each
    with caplog.at_level(logging.INFO, "plugrad"):
        traces = plugin.traces
        assert loss(learner) == expected
        if learner.update_mode.startswith("complete_update"):
            assert plugin.traces == traces  # while no number changes, nothing is compiled
        for change in changes:
            change(plugin, monkeypatch)
            expected /= 4
            assert loss(learner) == pytest.approx(expected, rel=1e-6)
            assert loss(learner) == pytest.approx(expected, rel=1e-6)
    if learner.update_mode.startswith("complete_update"):
        said = [each.message for each in caplog.records if each.message.startswith(AGAIN)]
        assert len(said) == len(changes)
        assert said[0] == f"{AGAIN}coeff of Scales was 1.0 and is 0.25"


def test_a_number_that_changes_with_every_update_is_warned_of_once_with_what_to_do(backend, caplog):
    plugin = Scales()
    mode = "auto" if backend == "torch" else "complete_update"
    learner = built(backend, mode, plugin)
    start = loss(learner)
    for n in range(1, MADE_IN_VAIN + 4):
        plugin.coeff = 1.0 / 2**n
        assert loss(learner) == pytest.approx(start / 2**n, rel=1e-6)
    said = [each.message for each in caplog.records if IN_VAIN in each.message]
    if backend != "torch":
        (said,) = said
        assert "coeff of Scales was 0.25 and is 0.125" in said
        assert "get_tensor_variable()" in said


def test_torch_compiles_anew_for_another_number_and_no_more_where_numbers_keep_changing(monkeypatch):
    import needs

    needs.backend("torch")
    monkeypatch.setattr("plugrad.learner.update.programs.MADE_IN_VAIN", 2)
    plugin = Scales()
    learner = built("torch", "complete_update", plugin)
    start = loss(learner)
    for n in range(1, 5):
        plugin.coeff = 1.0 / 2**n
        assert loss(learner) == pytest.approx(start / 2**n, rel=1e-6)
        assert learner.update_mode.startswith("complete_update" if n == 1 else "none")
    assert "its step reads Python numbers that keep changing: coeff of Scales was" in learner.update_mode


collections = 0.0


def count_collections(phase, info):
    """A callback of the garbage collector, such as hypothesis and profilers have."""
    global collections
    collections += 0.5 if phase else 0.0


def test_what_the_garbage_collector_calls_within_a_step_is_no_part_of_it(backend, caplog):
    before = gc.get_threshold()
    gc.callbacks.append(count_collections)
    try:
        gc.set_threshold(10, 2, 2)
        mode = "auto" if backend == "torch" else "complete_update"
        plugin = Scales()
        learner = built(backend, mode, plugin)
        with caplog.at_level(logging.INFO, "plugrad"):
            for _ in range(4):
                loss(learner)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(count_collections)
    assert plugin.made() is None, "what was made in a step is kept, and the step's tensors with it"
    assert collections > 2.0
    assert AGAIN not in caplog.text
