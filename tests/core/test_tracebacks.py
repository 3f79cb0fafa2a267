"""A traceback of a user's error shows the user's frames."""

import sys
import traceback
from pathlib import Path

import pytest

import plugrad
from plugrad import hookimpl
from plugrad.errors import BatchError
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_learner

CORE = str(Path(plugrad.__file__).parent)
BACKENDS = ["numpy", "strict"]


def fail():
    """The user's own line."""
    raise ZeroDivisionError("the user's own")


class FailingLoss(ActorCriticLearner):
    """A loss that raises."""

    def compute_loss_for_module(self, **given):
        fail()


class FailingModule(ActorCriticLearner):
    """Optimizers that raise, while the learner is built."""

    def configure_optimizers_for_module(self, module_id, config=None):
        fail()


class FailingListener:
    """A listener that raises."""

    @hookimpl
    def update_ended(self):
        fail()


class FailingWrapper:
    """A wrapper that raises inside the step."""

    @hookimpl(wrapper=True)
    def compute_losses(self):
        fail()
        return (yield)


def frames_above(call):
    """The files of the frames above the user's own line."""
    with pytest.raises(ZeroDivisionError) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    last = max(n for n, frame in enumerate(frames) if frame.name == "fail")
    return [frame.filename for frame in frames[:last]]


SUBJECTS = {
    "loss": lambda backend: tiny_learner(backend, FailingLoss).update(tiny_batch()),
    "optimizers": lambda backend: tiny_learner(backend, FailingModule),
    "listener": lambda backend: tiny_learner(backend, plugins=[FailingListener()]).update(tiny_batch()),
    "wrapper": lambda backend: tiny_learner(backend, plugins=[FailingWrapper()]).update(tiny_batch()),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_users_error_stands_under_few_frames_of_plugrad(monkeypatch, backend, subject):
    monkeypatch.delenv("PLUGRAD_DEBUG", raising=False)
    above = frames_above(lambda: SUBJECTS[subject](backend))
    assert sum(file.startswith(CORE) for file in above) <= 6
    assert __file__ in above  # the user's frames between are there


@pytest.mark.parametrize("subject", ["loss", "wrapper"])
def test_with_plugrad_debug_a_traceback_has_all_frames(monkeypatch, subject):
    monkeypatch.setenv("PLUGRAD_DEBUG", "1")
    above = frames_above(lambda: SUBJECTS[subject]("numpy"))
    assert sum(file.startswith(CORE) for file in above) > 6


def test_an_error_of_plugrads_own_keeps_its_frames(monkeypatch):
    monkeypatch.delenv("PLUGRAD_DEBUG", raising=False)
    with pytest.raises(BatchError) as caught:
        tiny_learner("numpy").update({"obs": [[1.0]]})
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files[-1].startswith(CORE)
    assert len(files) > 3


def test_what_a_users_line_has_called_stays_in_the_traceback(monkeypatch):
    """The frames of plugrad below the user's innermost line say what failed."""
    monkeypatch.delenv("PLUGRAD_DEBUG", raising=False)

    class Loss(ActorCriticLearner):
        def compute_loss_for_module(self, *, module_id, **given):
            self.register_metric(module_id, "wide", given["batch"]["advantages"])

    with pytest.raises(plugrad.errors.LossError, match="scalar") as caught:
        tiny_learner("numpy", Loss).update(tiny_batch())
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "register_metric" in names[names.index("compute_loss_for_module") :]


def test_an_error_is_the_same_object_without_a_cause(monkeypatch):
    monkeypatch.delenv("PLUGRAD_DEBUG", raising=False)
    mine = ZeroDivisionError("mine")

    class Loss(ActorCriticLearner):
        def compute_loss_for_module(self, **given):
            raise mine

    with pytest.raises(ZeroDivisionError) as caught:
        tiny_learner("numpy", Loss).update(tiny_batch())
    assert caught.value is mine
    assert mine.__cause__ is None
    assert mine.__context__ is None
    assert sys.exc_info() == (None, None, None)
