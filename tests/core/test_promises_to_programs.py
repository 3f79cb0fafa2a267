"""What `compile_update` and `Program.run` promise a backend: variables, tensors, and rows that exist."""

import numpy as np
import pytest

from plugrad import hookimpl
from plugrad.columns import Columns
from plugrad.learner.state.components import state_variables
from plugrad.optimizers import SGD
from plugrad.testing.backend_suite.programs import WithTarget
from plugrad.testing.tiny_learners import tiny_batch, tiny_learner


class Delayed(WithTarget):
    """Two optimizers, one of which steps in each second step."""

    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        for name, every in (("pi", 2), ("vf", 1)):
            own = [each for each in params if self.get_param_ref(each).startswith(f"{module_id}/{name}.")]
            self.register_optimizer(
                module_id=module_id, optimizer_name=name, optimizer=SGD(momentum=0.9), params=own,
                lr_or_lr_schedule=[[0, 0.1], [9, 0.0]], every=every,
            )  # fmt: skip


class Notes:
    """Notes variables, and what programs are given; as a backend whose programs have fixed shapes."""

    def __init__(self):
        self.made, self.variables, self.given = [], [], []

    @hookimpl(wrapper=True)
    def get_tensor_variable(self):
        self.made.append((yield))
        return self.made[-1]

    @hookimpl(wrapper=True)
    def flatten_parameters(self):
        self.made.append((yield))
        return self.made[-1]

    @hookimpl(wrapper=True)
    def compile_update(self, variables):
        program = yield
        program.static_shapes = program.static_minibatches = True
        self.variables, run = variables, program.run

        def noted(columns, indices, num_steps):
            self.given.append((columns, indices, num_steps))
            return run(columns, indices, num_steps)

        program.run = noted
        return program


@pytest.fixture(scope="module")
def notes():
    """Of one update, which costs seconds: tests look, and change nothing."""
    notes = Notes()
    learner = tiny_learner(
        "numpy", Delayed, [notes], modules=("a", "b"), minibatch_size=5, num_epochs=3, accumulate=2
    )
    learner.update({"a": tiny_batch(19), "b": tiny_batch(11)})
    assert len(notes.given) == 1
    assert {id(each) for each in state_variables(learner)} == {id(each) for each in notes.variables}
    return notes


def test_variables_are_complete(notes):
    assert len(notes.made) > 10
    assert {id(each) for each in notes.made} <= {id(each) for each in notes.variables}


def test_variables_are_distinct(notes):
    assert len({id(each) for each in notes.variables}) == len(notes.variables)


def test_indices_are_rows_that_exist_also_those_that_fill_up(notes):
    ((columns, indices, num_steps),) = notes.given
    assert type(num_steps) is int
    assert set(columns) == set(indices)
    for module_id, rows in indices.items():
        assert rows.dtype == np.int32
        assert len(rows) >= num_steps
        lengths = {len(each) for each in columns[module_id].values()}
        assert len(lengths) == 1
        assert rows.min() >= 0
        assert rows.max() < lengths.pop()
    assert len(indices["a"]) > num_steps, "nothing was filled up"


def test_indices_of_filled_up_sequences_exist():
    notes = Notes()
    settings = {"minibatch_size": 9, "num_epochs": 2}
    learner = tiny_learner("numpy", plugins=[notes], **settings)
    batch = tiny_batch(21)
    sequences = {column: each.reshape(7, 3, *each.shape[1:]) for column, each in batch.items()}
    learner.update({**sequences, Columns.LOSS_MASK: np.ones((7, 3), bool)})
    ((columns, indices, _),) = notes.given
    (rows,) = indices.values()
    (own,) = columns.values()
    assert rows.max() < min(map(len, own.values()))
