"""The reference backend: its gradients against calculus, its storage, and modules of one's own on it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from learning import ValueLearner, ppo_batch, ppo_config, value_config, with_modules

import plugrad
from plugrad import DEFAULT_MODULE_ID, Columns, MultiRLModule, RLModuleSpec
from plugrad.errors import LossError
from plugrad.testing.finite_differences import central_differences
from plugrad.testing.numpy_module import ArrayVariable, NumpyRLModule

P = DEFAULT_MODULE_ID
vectors = hnp.arrays(np.float64, st.integers(1, 6), elements=st.floats(-10, 10))


@given(vectors)
def test_central_differences_agree_with_calculus(x):
    def function(at):
        return np.array([np.sum(np.sin(at)), np.sum(at**3), np.exp(at[0] / 10)])

    expected = np.cos(x) + 3 * x**2
    expected[0] += np.exp(x[0] / 10) / 10
    np.testing.assert_allclose(central_differences(function, x), expected, rtol=1e-7, atol=1e-7)


@given(vectors, vectors)
def test_a_variable_stores_float32_and_reads_float64(first, second):
    variable = ArrayVariable(first)
    before = variable.read()
    kept = before.copy()
    assert before.dtype == np.float64
    np.testing.assert_array_equal(variable.numpy(), first.astype(np.float32))
    if second.shape == first.shape:
        variable.assign(second)
        np.testing.assert_array_equal(variable.read(), second.astype(np.float32))
    np.testing.assert_array_equal(before, kept)


def test_the_backend_is_found_by_name_and_says_what_runs():
    record = next(each for each in plugrad.list_plugins() if each.name == "numpy")
    assert (record.kind, record.installed, record.requires) == ("backend", True, None)
    learner = ppo_config(minibatch_size=8).build_learner()
    assert learner.backend_info.name == "numpy"
    assert learner.device == "cpu"
    learner.update(ppo_batch())
    assert learner.update_mode == "none: numpy, one step per minibatch"


def sum_of_parameters(learner):
    return {
        module_id: sum(param.read().sum() for param in learner.get_parameters(learner.module[module_id]))
        for module_id in learner.module
    }


def test_the_gradient_of_the_sum_of_all_parameters_is_ones():
    learner = with_modules(ppo_config(), "a", "b").build_learner()
    gradients = learner.compute_gradients(
        sum_of_parameters(learner), loss_fn=lambda: sum_of_parameters(learner)
    )
    params = [param for module_id in "ab" for param in learner.get_parameters(learner.module[module_id])]
    assert list(gradients) == [learner.get_param_ref(param) for param in params]
    for param in params:
        gradient = gradients[learner.get_param_ref(param)]
        assert gradient.shape == param.shape
        np.testing.assert_allclose(gradient, 1.0, atol=1e-9)


def test_what_can_not_be_differentiated_says_so():
    learner = ppo_config().build_learner()
    losses = sum_of_parameters(learner)
    with pytest.raises(LossError, match="give loss_fn="):
        learner.compute_gradients(losses)
    with pytest.raises(LossError, match="only what compute_losses returned"):
        learner.compute_gradients({P: 2 * losses[P]}, loss_fn=lambda: losses)


def test_a_loss_that_is_changed_between_loss_and_gradient_is_never_silently_ignored():
    class Doubling(ValueLearner):
        def compute_gradients(self, loss_per_module, **kwargs):
            return super().compute_gradients({m: 2 * loss for m, loss in loss_per_module.items()}, **kwargs)

    with pytest.raises(LossError, match="only what compute_losses returned"):
        value_config(learner_class=Doubling).build_learner().update(ppo_batch())


class Line(NumpyRLModule):
    """v = slope * x0 + offset."""

    def setup(self):
        self.slope = ArrayVariable(np.array([2.0]))
        self.offset = ArrayVariable(0.5)

    def _forward(self, batch, **kwargs):
        return {Columns.VF_PREDS: self.slope.read()[0] * batch[Columns.OBS][:, 0] + self.offset.read()}


class HalfStopped(ValueLearner):
    """d/dv of v * stopped(v) is v, and not 2v; the metric is that of the parameters as they are."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        values = fwd_out[Columns.VF_PREDS]
        self.register_metric(module_id, "mean_value", self.ops.mean(values))
        return self.ops.mean(values * self.ops.stop_gradient(values))

    def postprocess_gradients(self, gradients_dict):
        self.gradients = dict(gradients_dict)
        return super().postprocess_gradients(gradients_dict)


def test_finite_differences_respect_stop_gradient_and_leave_metrics_alone():
    config = value_config(learner_class=HalfStopped).rl_module(rl_module_spec=RLModuleSpec(module_class=Line))
    learner = config.build_learner()
    obs = ppo_batch()[Columns.OBS].astype(np.float64)
    values = 2.0 * obs[:, 0] + 0.5
    results = learner.update({Columns.OBS: obs})
    np.testing.assert_allclose(learner.gradients[f"{P}/offset"], values.mean(), atol=1e-8)
    np.testing.assert_allclose(learner.gradients[f"{P}/slope"], [(values * obs[:, 0]).mean()], atol=1e-8)
    assert results[P]["mean_value"] == pytest.approx(values.mean(), abs=1e-6)


def test_a_module_of_ones_own_learns_a_line():
    config = value_config(lr=0.1).rl_module(rl_module_spec=RLModuleSpec(module_class=Line))
    learner = config.build_learner()
    obs = ppo_batch()[Columns.OBS]
    batch = {Columns.OBS: obs, Columns.VALUE_TARGETS: -1.0 * obs[:, 0] + 3.0}
    for _ in range(200):
        loss = learner.update(batch)[P]["total_loss"]
    assert loss < 1e-3
    assert learner.get_weights()[P]["slope"] == pytest.approx(-1.0, abs=0.05)
    assert learner.compute_values(np.zeros((1, 3))) == pytest.approx(3.0, abs=0.05)


def test_finished_modules_can_be_given():
    spaces = {
        "observation_space": ppo_config().observation_space,
        "action_space": ppo_config().action_space,
    }
    for given_module, name in ((Line(**spaces), P), (MultiRLModule({"m": Line(**spaces)}), "m")):
        learner = ValueLearner(config=value_config(), module=given_module)
        learner.build()
        assert list(learner.get_weights()[name]) == ["offset", "slope"]
