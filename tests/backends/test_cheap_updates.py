"""An update of one gradient step is cheap: what surrounds the program is counted in calls, which no load changes."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import needs
import numpy as np
import pytest
from learning import ppo_batch, ppo_config

from plugrad import DEFAULT_MODULE_ID, numpy_ops
from plugrad.errors import NonFiniteError
from plugrad.learner.state.components import state_variables
from plugrad_ppo import PPOLearner

ROWS = 8
AT_MOST = {"torch": 910, "tf2": 1330, "jax": 930}
"""Of Python and C functions: what it took when this was written, and a quarter more."""


class Calls:
    """Counts calls of functions while it is on."""

    number = 0

    def _count(self, frame: Any, event: str, argument: Any) -> None:
        self.number += event in ("call", "c_call")

    @contextmanager
    def on(self, is_on: bool = True) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._count if is_on else None)
        try:
            yield
        finally:
            sys.setprofile(before)


class CountingLearner(PPOLearner):
    """Does not count what happens within the program."""

    calls = Calls()

    def _compile_update(self, step: Any, variables: Sequence[Any], mode: str) -> Any:
        program = super()._compile_update(step, variables, mode)
        run = program.run

        def uncounted(*arguments: Any) -> Any:
            with self.calls.on(False):
                return run(*arguments)

        program.run = uncounted
        return program


def test_few_functions_are_called_around_the_program_of_one_step(backend):
    config = ppo_config(backend).learners(learner_class=CountingLearner)
    learner = config.build_learner()
    learner.update(ppo_batch(ROWS), minibatch_size=ROWS, num_epochs=1)
    learner.calls.number = 0
    with learner.calls.on():
        learner.update(ppo_batch(ROWS), minibatch_size=ROWS, num_epochs=1)
    assert 100 < learner.calls.number < AT_MOST[backend]


@needs.backends("tf2")
def test_tensorflow_traces_anew_for_other_names_shapes_and_dtypes_and_for_nothing_else():
    import tensorflow as tf

    from plugrad_tf2.direct_call import DirectFunction

    traced: list[list[str]] = []

    def weighted(columns: Any, factor: Any) -> Any:
        traced.append(list(columns["p0"]))
        sums = [tf.reduce_sum(tf.cast(x, "float32")) for x in columns["p0"].values()]
        return {"sum": sum(n * each for n, each in enumerate(sums, 1)) * factor}

    function = DirectFunction(weighted)

    def call(factor: float, **columns: Any) -> float:
        tensors = {name: tf.constant(values) for name, values in columns.items()}
        return float(function({"p0": tensors}, tf.constant(factor))["sum"])

    one, two = np.ones(3, np.float32), np.full(3, 2, np.float32)
    assert call(1.0, a=one, b=two) == 3 + 2 * 6
    assert call(2.0, a=two, b=one) == 2 * (6 + 2 * 3)
    assert traced == [["a", "b"]]
    assert call(1.0, b=one, a=two) == 3 + 2 * 6  # by their order, as the columns of a batch
    assert call(1.0, a=one[:2], b=two) == 2 + 2 * 6
    assert call(1.0, a=one.astype(np.int32), b=two) == 3 + 2 * 6
    assert traced == [["a", "b"], ["b", "a"], ["a", "b"], ["a", "b"]]


@needs.backends("tf2")
def test_a_snapshot_of_a_flat_vector_is_not_changed_by_what_is_assigned_later():
    learner = ppo_config("tf2").build_learner()
    (registered,) = learner.registered_optimizers.values()
    parameters = registered.parameters
    before, snapshot = parameters.numpy(), parameters.snapshot()
    parameters.assign(before + 1.0)
    np.testing.assert_array_equal(parameters.numpy(), before + 1.0)
    parameters.assign(snapshot)
    np.testing.assert_array_equal(parameters.numpy(), before)


def test_a_snapshot_of_all_variables_is_put_back_after_an_update(backend):
    learner = ppo_config(backend).build_learner()
    learner.update(ppo_batch(ROWS))
    variables = state_variables(learner)
    before = [each.numpy() for each in variables]
    taken = learner._snapshot_variables(variables)
    learner.update(ppo_batch(ROWS), timesteps={"num_env_steps_sampled_lifetime": 1})
    assert any(np.any(each.numpy() != value) for each, value in zip(variables, before, strict=True))
    for variable, value in zip(variables, taken, strict=True):
        variable.assign(value)
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


@pytest.mark.parametrize("compile_mode", ["none", "auto"])
def test_every_program_gets_what_a_class_makes_of_a_batch(backend, compile_mode):
    class WithoutAdvantages(PPOLearner):
        def _convert_batch_type(self, batch: Any) -> dict[str, Any]:
            columns = {
                key: {**each, "advantages": 0.0 * each["advantages"]} if "advantages" in each else each
                for key, each in batch.items()
                if isinstance(each, dict)
            }
            return super()._convert_batch_type({**batch, **columns})

    config = ppo_config(backend).framework(backend, compile=compile_mode)
    plain, changed = (
        each.build_learner() for each in (config, config.learners(learner_class=WithoutAdvantages))
    )
    batch = ppo_batch(ROWS)
    plain.update({**batch, "advantages": 0.0 * batch["advantages"]})
    changed.update(batch)
    expected, found = (each.get_weights()[DEFAULT_MODULE_ID] for each in (plain, changed))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_who_acts_after_an_update_copies_only_the_weights_that_are_read(backend):
    learner = ppo_config(backend).build_learner()
    module = learner.module[DEFAULT_MODULE_ID]
    weights, state = module._acting_weights(), module.get_state()
    assert list(weights) == list(state)
    assert len(weights) == len(state)
    np.testing.assert_array_equal(weights["pi.out.weight"], state["pi.out.weight"])
    module.set_state({name: values + 1.0 for name, values in state.items()})
    np.testing.assert_array_equal(weights["pi.out.weight"], state["pi.out.weight"])  # a copy of its time
    np.testing.assert_array_equal(weights["vf.out.weight"], state["vf.out.weight"] + 1.0)  # not read before


def test_actions_are_of_the_weights_after_each_update(backend):
    learner = ppo_config(backend, lr=0.1).build_learner()
    batch = ppo_batch(ROWS)
    before = learner.compute_actions(batch["obs"], explore=False)["action_dist_inputs"]
    learner.update(batch)
    after = learner.compute_actions(batch["obs"], explore=False)["action_dist_inputs"]
    module = learner.module[DEFAULT_MODULE_ID]
    expected = module.network.forward(numpy_ops, module.get_state(), {"obs": batch["obs"]}, value=False)
    np.testing.assert_array_equal(after, expected["action_dist_inputs"])
    assert np.abs(after - before).max() > 0.01


def test_a_number_is_what_was_assigned_last_by_whomever(backend):
    learner = ppo_config(backend, lr=0.5).build_learner()
    rate = next(iter(learner.registered_optimizers.values())).optimizer_adapter.lr
    before = rate.snapshot()
    for value in (0.1, 0.1, np.float32(0.2), np.array(0.3), learner.ops.asarray(0.4), 0.1, float("nan"), 0.1):
        rate.assign(value)
        number = np.float32(learner._convert_to_numpy(learner.ops.asarray(value)))
        np.testing.assert_array_equal(learner._convert_to_numpy(rate.read()), number)
        np.testing.assert_array_equal(rate.numpy(), number)
        assert rate.numpy().dtype == np.float32
    rate.assign(before)
    assert rate.numpy() == np.float32(0.5)


def test_a_number_that_programs_change_is_read_anew(backend):
    class Counting(PPOLearner):
        def _update(self, batch: Any) -> Any:
            self.number.assign(self.number.read() + 1.0)
            return super()._update(batch)

    learner = ppo_config(backend).learners(learner_class=Counting).build_learner()
    number = learner.coefficients[DEFAULT_MODULE_ID].variables["clip_param"]
    learner.number = number
    number.assign(5.0)
    for _ in range(2):
        learner.update(ppo_batch(ROWS), num_epochs=3)
    assert number.numpy() == 11.0
    number.assign(11.0)
    number.assign(2.0)
    assert number.numpy() == 2.0
    learner.update(ppo_batch(ROWS), num_epochs=3)
    assert number.numpy() == 5.0
    number.assign(2.0)  # as it was last assigned outside
    assert number.numpy() == 2.0
    with pytest.raises(NonFiniteError):
        learner.update({**ppo_batch(ROWS), "advantages": np.full(ROWS, 3e38, np.float32)}, num_epochs=3)
    assert number.numpy() == 2.0
