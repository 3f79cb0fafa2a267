"""A backend says by a context how the parts of a step run; the learner that trains is not changed for a step."""

import numpy as np
from learning import digest

from plugrad.hooks.backend_spec import StepContext
from plugrad.learner.update.step import make_step
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_config, tiny_learner

P = "default_policy"


class Notes(ActorCriticLearner):
    """Notes with what its losses are computed, and what the learner itself has meanwhile."""

    def __init__(self, **given):
        super().__init__(**given)
        self.itself, self.notes = self, []
        self.number = 0

    def compute_loss_for_module(self, **given):
        self.number += 1
        itself = self.itself
        self.notes.append(
            (self is itself, type(itself.ops).__name__, type(itself.module).__name__, itself.metrics)
        )
        return super().compute_loss_for_module(**given)


def test_a_loss_is_tried_out_with_a_copy_and_the_learner_stays_as_it_is():
    learner = Notes(config=tiny_config("numpy"))
    learner.build()
    of_learner = (type(learner.ops).__name__, type(learner.module).__name__, learner.metrics)
    learner.update(tiny_batch())
    assert any(not is_itself for is_itself, *_ in learner.notes), "no loss was tried out"
    assert any(is_itself for is_itself, *_ in learner.notes)
    assert {tuple(have) for _, *have in learner.notes} == {of_learner}
    assert learner.number == sum(is_itself for is_itself, *_ in learner.notes), "the trial counts as a step"


def stepped(context=None):
    """The weights and the metrics after one step."""
    learner = tiny_learner("numpy")
    step = make_step(learner, set())
    minibatch = {P: tiny_batch(8)}
    metrics = step(minibatch) if context is None else step(minibatch, context)
    return digest(learner.get_weights()), {name: float(value) for name, value in metrics.items()}


def test_a_backend_runs_the_parts_of_a_step_in_its_own_way_and_the_numbers_stay():
    ran = []

    def run(name):
        def around(part):
            ran.append(f"{name} begins")
            answer = part()
            ran.append(f"{name} ends")
            return answer

        return around

    def forward(module_id, part, batch, **kwargs):
        ran.append(f"forward of {module_id}")
        return part(batch, **kwargs)

    context = StepContext(run("differentiate"), run("finish"), forward, run("try_out"))
    assert stepped(context) == stepped()
    assert ran.count("try_out begins") == 1
    assert ran.index("try_out ends") < ran.index("differentiate begins")
    assert ran[-2:] == ["finish begins", "finish ends"]
    begins, ends = ran.index("differentiate begins"), ran.index("differentiate ends")
    assert f"forward of {P}" in ran[begins:ends]
    assert ran.count("finish begins") == ran.count("differentiate begins") == 1


def test_after_a_step_that_failed_the_modules_compute_as_before():
    learner = tiny_learner("numpy")
    obs = {"obs": np.zeros((2, 3), np.float32)}
    before = digest(learner.module[P].forward_train(obs))

    def fails(module_id, part, batch, **kwargs):
        raise ZeroDivisionError

    step = make_step(learner, set())
    try:
        step({P: tiny_batch(8)}, StepContext(forward_train=fails))
    except ZeroDivisionError:
        assert digest(learner.module[P].forward_train(obs)) == before
    else:
        raise AssertionError("the context's forward pass did not run")
