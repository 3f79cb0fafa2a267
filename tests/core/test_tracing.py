"""`PLUGRAD_TRACE=1`: what it shows of which calls, and that it changes nothing."""

import re

import numpy as np
import pytest

from plugrad import hookimpl
from plugrad.hooks.tracing import VARIABLE
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_learner, weights_of


class Doubled:
    """Goes around two hooks, and hears a third."""

    @hookimpl(wrapper=True)
    def compute_losses(self, fwd_out):
        losses = yield
        return {module_id: 2.0 * loss for module_id, loss in losses.items()}

    @hookimpl(wrapper=True)
    def apply_gradients(self):
        return (yield)

    @hookimpl
    def update_ended(self, learner):
        learner._get_optimizer_lr(learner.get_optimizer())


def trained(*plugins):
    learner = tiny_learner("numpy", plugins=plugins)
    learner.update(tiny_batch(8))
    return learner


@pytest.fixture
def lines(monkeypatch, capsys):
    """What is said of the second update: losses of the first are watched for broadcasts."""
    monkeypatch.setenv(VARIABLE, "1")
    learner = tiny_learner("numpy", plugins=[Doubled()])
    built = capsys.readouterr().err
    assert "plugrad: backend_info  backend 'numpy'  " in built
    assert "plugrad:     register_optimizer  core 'optimizers'" in built
    learner.update(tiny_batch(8))
    capsys.readouterr()
    learner.update(tiny_batch(8))
    return capsys.readouterr().err.splitlines()


def without_times(lines):
    return [re.sub(r"  \d+\.\d\d ms", "  T", line).removeprefix("plugrad: ") for line in lines]


def test_every_call_is_a_line_with_its_plugin_and_its_time_indented_by_depth(lines):
    said = without_times(lines)
    assert "convert_batch_type  backend 'numpy'  T" in said
    first = said.index("    compute_losses  listener 'Doubled', wrapping")
    assert said[first - 2 : first + 5] == [
        "update  core 'step'",
        "  differentiate  backend 'numpy'",
        "    compute_losses  listener 'Doubled', wrapping",
        "      compute_losses  core 'step'",
        "        compute_loss_for_module  learner 'ActorCriticLearner'  T",
        "      compute_losses took  T",
        "    compute_losses took  T",
    ]
    applied = said.index("  apply_gradients  listener 'Doubled', wrapping")
    assert said[applied : applied + 4] == [
        "  apply_gradients  listener 'Doubled', wrapping",
        "    apply_gradients  core 'step'  T",
        "  apply_gradients took  T",
        "update took  T",
    ]  # fmt: skip


def test_an_update_ends_with_how_it_ran_and_how_many_steps_python_saw(lines):
    assert without_times(lines)[-5:] == [
        "update_ended  listener 'Doubled'",
        "  get_optimizer  core 'optimizers'  T",
        "  get_optimizer_lr  backend 'numpy'  T",
        "update_ended took  T",
        "-- updated by none: numpy, one step per minibatch; steps that Python ran: 1",
    ]


class Overriding(ActorCriticLearner):
    """One method that is wrapped, too, and one that is not."""

    def _update(self, batch):
        return super()._update(batch)

    def apply_gradients(self, gradients_dict):
        super().apply_gradients(gradients_dict)


def test_an_override_is_a_line_with_its_class_and_goes_around_what_it_calls(monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, "1")
    learner = tiny_learner("numpy", Overriding, plugins=[Doubled()])
    learner.update(tiny_batch(8))
    said = without_times(capsys.readouterr().err.splitlines())
    assert said[said.index("update  learner 'Overriding'") + 1] == "  update  core 'step'"
    applied = said.index("    apply_gradients  listener 'Doubled', wrapping")
    assert said[applied + 1 : applied + 5] == [
        "      apply_gradients  learner 'Overriding'",
        "        apply_gradients  core 'step'  T",
        "      apply_gradients took  T",
        "    apply_gradients took  T",
    ]
    assert said[-1].endswith("steps that Python ran: 1")


def test_an_error_is_said_where_it_passes_and_the_next_call_begins_where_it_should(monkeypatch, capsys):
    class Failing:
        @hookimpl(wrapper=True)
        def compute_losses(self):
            yield
            raise ZeroDivisionError

    monkeypatch.setenv(VARIABLE, "1")
    learner = tiny_learner("numpy", plugins=[Failing()])
    with pytest.raises(ZeroDivisionError):
        learner.update(tiny_batch(8))
    said = without_times(capsys.readouterr().err.splitlines())
    assert said[-3:] == [
        "    compute_losses took  T, raised ZeroDivisionError",
        "  differentiate took  T, raised ZeroDivisionError",
        "update took  T, raised ZeroDivisionError",
    ]
    learner.get_optimizer()
    assert capsys.readouterr().err.startswith("plugrad: get_optimizer  core")


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_the_variable_nothing_is_said_and_with_it_nothing_is_changed(monkeypatch, capsys, value):
    monkeypatch.setenv(VARIABLE, "1")
    expected = weights_of(trained(Doubled()))
    capsys.readouterr()
    monkeypatch.delenv(VARIABLE)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    learner = trained(Doubled())
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(weights_of(learner), expected)
