"""Users' models are trained in training mode and act in inference mode, whatever calls them."""

import re

import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, ValueLearner, ppo_batch, ppo_config, quick, value_config
from statistics_models import normed

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec
from plugrad.errors import BatchError
from plugrad_ppo import PPOLearner

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID
OBS = ppo_batch(8, seed=7)[Columns.OBS]


def learner_of(backend, module, mode="none", cls=PPOLearner):
    config = ppo_config(backend, lr=0.01, minibatch_size=16).framework(backend, compile=mode, device="cpu")
    learner = cls(config=config, module=module)
    learner.build()
    learner.update(ppo_batch(32))
    return learner


def own_module(backend):
    """An RLModule class with BatchNorm and Dropout among its layers."""
    if backend == "torch":
        import torch

        from plugrad_torch.module import TorchRLModule

        class Own(TorchRLModule):
            def setup(self):
                self.layers = torch.nn.Sequential(
                    torch.nn.Linear(3, 8),
                    torch.nn.BatchNorm1d(8),
                    torch.nn.Dropout(0.5),
                    torch.nn.Linear(8, 3),
                )
                self.seen = []

            def _forward(self, batch, **kwargs):
                self.seen.append(self.layers[1].training)
                outputs = self.layers(batch[Columns.OBS])
                return {Columns.ACTION_DIST_INPUTS: outputs[:, :2], Columns.VF_PREDS: outputs[:, 2]}

        return Own
    if backend == "jax":
        from flax import nnx

        from plugrad_jax import JaxRLModule

        class Own(JaxRLModule):
            def setup(self):
                rngs = nnx.Rngs(0)
                self.dense, self.normal = nnx.Linear(3, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
                self.dropout, self.head = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)
                self.seen = []

            def _forward(self, batch, **kwargs):
                self.seen.append(not self.normal.use_running_average)
                outputs = self.head(self.dropout(self.normal(self.dense(batch[Columns.OBS]))))
                return {Columns.ACTION_DIST_INPUTS: outputs[:, :2], Columns.VF_PREDS: outputs[:, 2]}

        return Own
    import tensorflow as tf

    from plugrad_tf2.module import Tf2RLModule

    class Seeing(tf.keras.layers.Layer):
        """Says whether it is trained."""

        def __init__(self):
            super().__init__()
            self.seen = []

        def call(self, x, training=False):
            self.seen.append(training)
            return x

    class Own(Tf2RLModule):
        def setup(self):
            keras = tf.keras.layers
            self.dense, self.normal, self.dropout = (
                keras.Dense(8),
                keras.BatchNormalization(),
                keras.Dropout(0.5),
            )
            self.head, self.seeing = keras.Dense(3), Seeing()
            self.head(self.dropout(self.normal(self.dense(tf.zeros([1, 3])))))

        @property
        def seen(self):
            return self.seeing.seen

        def _forward(self, batch, **kwargs):
            hidden = self.seeing(self.dropout(self.normal(self.dense(batch[Columns.OBS]))))
            outputs = self.head(hidden)
            return {Columns.ACTION_DIST_INPUTS: outputs[:, :2], Columns.VF_PREDS: outputs[:, 2]}

    return Own


def built(backend, cls):
    return cls(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)


@pytest.fixture(scope="module", params=["a model", "an RLModule"])
def learner(request, backend):
    model = normed(backend) if request.param == "a model" else built(backend, own_module(backend))
    return learner_of(backend, model)


def test_two_greedy_calls_are_equal(learner):
    first, second = (learner.compute_actions(OBS, explore=False) for _ in range(2))
    np.testing.assert_array_equal(first[Columns.ACTION_DIST_INPUTS], second[Columns.ACTION_DIST_INPUTS])
    first, second = (learner.compute_actions(OBS)[Columns.VF_PREDS] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_one_observation_is_acted_on_as_among_others(learner):
    among = learner.compute_actions(OBS, explore=False)[Columns.ACTION_DIST_INPUTS]
    for n in range(2):
        alone = learner.compute_actions(OBS[n : n + 1], explore=False)[Columns.ACTION_DIST_INPUTS]
        np.testing.assert_allclose(alone[0], among[n], rtol=0, atol=1e-6)


def test_values_are_of_inference(learner):
    values = learner.compute_values(OBS)
    np.testing.assert_array_equal(learner.compute_values(OBS), values)
    np.testing.assert_allclose(learner.compute_values(OBS[:1]), values[:1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(learner.compute_actions(OBS)[Columns.VF_PREDS], values, rtol=0, atol=1e-6)


def test_acting_moves_no_statistics(learner):
    before = {name: values.tobytes() for name, values in learner.get_weights()[P].items()}
    learner.compute_actions(OBS)
    learner.compute_values(OBS)
    assert {name: values.tobytes() for name, values in learner.get_weights()[P].items()} == before


@pytest.mark.parametrize("mode", ["none", "forward_train", "complete_update"])
def test_a_class_of_modules_is_trained_in_training_mode_in_every_mode(backend, mode):
    module = built(backend, own_module(backend))
    if backend == "torch":
        module.eval()
    learner = learner_of(backend, module, mode)
    seen = module.seen
    assert seen
    assert all(each is True for each in seen[-1:])
    seen.clear()
    learner.compute_actions(OBS)
    learner.compute_values(OBS)
    assert set(seen) == {False}


@pytest.mark.parametrize("mode", ["none", "forward_train"])
def test_a_class_of_modules_that_overrides_forward_train_is_trained_by_it(backend, mode):
    class Doubling(own_module(backend)):
        def forward_train(self, batch, **kwargs):
            outputs = super().forward_train(batch, **kwargs)
            return {**outputs, "doubled": 2.0 * outputs[Columns.VF_PREDS]}

    class Doubled(PPOLearner):
        def compute_loss_for_module(self, *, fwd_out, **arguments):
            self.register_metric(P, "doubled", self.ops.mean(fwd_out["doubled"]))
            return super().compute_loss_for_module(fwd_out=fwd_out, **arguments)

    learner = learner_of(backend, built(backend, Doubling), mode, Doubled)
    assert learner.update(ppo_batch(32))[P]["doubled"] != 0.0
    assert learner.update_mode.startswith(mode)


def test_a_forward_pass_that_is_not_compiled_is_not_said_to_be(backend):
    class Alone(own_module(backend)):
        def forward_train(self, batch, **kwargs):
            return self._forward(batch, **kwargs)

    learner = learner_of(backend, built(backend, Alone), "forward_train")
    learner.update(ppo_batch(32))
    expected = r"none: .*because forward_train of 'default_policy' does not call super\(\)"
    if backend == "jax":  # its program has the whole step, whatever computes the outputs
        expected = "forward_train: each step one XLA program"
    assert re.match(expected, learner.update_mode), learner.update_mode


@pytest.mark.parametrize("mode", ["none", "forward_train"])
def test_outputs_of_a_class_of_modules_are_checked(backend, mode):
    class Flat(own_module(backend)):
        def _forward(self, batch, **kwargs):
            outputs = super()._forward(batch, **kwargs)
            return {**outputs, Columns.VF_PREDS: outputs[Columns.ACTION_DIST_INPUTS]}

    with pytest.raises(BatchError, match="Flat returned 'vf_preds' as float32"):
        learner_of(backend, built(backend, Flat), mode)


def test_values_that_a_class_computes_itself_are_of_inference(backend):
    class WithValues(own_module(backend)):
        def compute_values(self, batch):
            return self._forward_train(batch)[Columns.VF_PREDS]

        def forward_inference(self, batch, **kwargs):
            return super().forward_inference(batch, **kwargs)

    learner = learner_of(backend, built(backend, WithValues))
    learner.module[P].seen.clear()
    learner.compute_values(OBS)
    learner.compute_actions(OBS, explore=False)
    assert set(learner.module[P].seen) == {False}


def test_the_former_mode_comes_back_also_after_an_error(backend):
    class Failing(own_module(backend)):
        fails = False

        def _forward(self, batch, **kwargs):
            outputs = super()._forward(batch, **kwargs)
            if self.fails:
                raise OSError("the user's own")
            return outputs

    module = built(backend, Failing)
    learner = learner_of(backend, module)
    if backend == "torch":
        module.layers[1].eval()
        flags = [each.training for each in module.modules()]
    module.fails = True
    for work in (
        lambda: learner.compute_actions(OBS),
        lambda: learner.compute_values(OBS),
        lambda: learner.update(ppo_batch(16)),
    ):
        with pytest.raises(OSError, match="the user's own") as found:
            work()
        assert type(found.value) is OSError
    if backend == "torch":
        assert [each.training for each in module.modules()] == flags
    module.fails = False
    learner.compute_actions(OBS)
    assert module.seen[-1] is False


def test_a_model_may_take_training_or_not(backend):
    if backend != "tf2":  # models of the others have a flag instead
        return
    import tensorflow as tf

    seen = []

    class Takes(tf.Module):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(3)

        def __call__(self, obs, training=None):
            seen.append(training)
            outputs = self.dense(obs)
            return outputs[:, :2], outputs[:, 2:]

    learner = learner_of(backend, Takes())
    assert seen[0] is False
    assert True in seen
    seen.clear()
    learner.compute_actions(OBS)
    assert seen == [False]


def test_users_classes_come_from_specs_too(backend):
    spec = RLModuleSpec(module_class=own_module(backend))
    learner = quick(ppo_config(backend, lr=0.01)).rl_module(rl_module_spec=spec).build_learner()
    learner.update(ppo_batch(16))
    greedy = [learner.compute_actions(OBS, explore=False)[Columns.ACTION_DIST_INPUTS] for _ in range(2)]
    np.testing.assert_array_equal(*greedy)


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_a_target_network_computes_in_inference_mode_with_the_models_present_statistics(backend, mode):
    class Bootstrapping(ValueLearner):
        """Reports the mean of its target's values."""

        def get_target_parameters(self, module_id, config=None):
            return list(self.module[module_id].get_state())

        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            later = self.targets[module_id].forward({Columns.OBS: batch[Columns.OBS]})
            self.register_metric(module_id, "target_mean", self.ops.mean(later[Columns.VF_PREDS]))
            return super().compute_loss_for_module(
                module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
            )

    config = value_config(backend, lr=0.0).framework(backend, compile=mode, device="cpu")
    learner = Bootstrapping(config=config, module=normed(backend))
    learner.build()
    batch = ppo_batch(32)
    for _ in range(2):
        values = learner.compute_values(batch[Columns.OBS])
        found = learner.update(batch)[P]["target_mean"]
        # The loss asks the target after forward_train, which has moved the statistics; the target moved none.
        moved = learner.compute_values(batch[Columns.OBS])
        assert found == pytest.approx(moved.mean(), abs=1e-6)
        assert found != pytest.approx(values.mean(), abs=1e-6)
