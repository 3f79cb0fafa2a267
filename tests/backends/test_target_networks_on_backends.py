"""Target networks in every mode of every backend: numpy's numbers, no gradient, also for users' own modules."""

import importlib
import sys

import numpy as np
import pytest
from learning import digest, largest_difference, quick_mode, value_config, with_modules
from target_learning import BootstrappingLearner, bootstrapping

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec
from plugrad.networks import ActorCritic

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID


def batch(rows=16, seed=0):
    rng = np.random.default_rng(seed)
    return {
        Columns.OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.NEXT_OBS: rng.normal(size=(rows, 3)).astype(np.float32),
        Columns.REWARDS: rng.normal(size=rows).astype(np.float32),
    }


def after_updates(learner, number=3):
    results = [learner.update(batch(seed=n))[P]["target_mean"] for n in range(number)]
    return {"results": np.array(results, np.float32), **learner.get_state(["rl_module", "targets"])}


@pytest.fixture(scope="module")
def expected():
    return after_updates(bootstrapping("numpy"))


@pytest.mark.parametrize("mode", ["none", "forward_train", "complete_update"])
def test_every_mode_has_numpys_numbers(backend, mode, expected):
    learner = bootstrapping(backend)
    learner.config = learner.config.framework(backend, compile=mode)
    found = after_updates(learner)
    assert learner.update_mode.startswith(mode), learner.update_mode
    assert largest_difference(found, expected) < 1e-5


class LooksThroughTheTarget(BootstrappingLearner):
    """What its target network sees depends on weights that are trained."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        seen = batch[Columns.OBS] + self.ops.expand_dims(fwd_out[Columns.VF_PREDS], -1)
        values = self.targets[module_id].forward({Columns.OBS: seen})[Columns.VF_PREDS]
        return self.ops.mean(values) + 0.0 * self.ops.mean(fwd_out[Columns.VF_PREDS])


def test_no_gradient_flows_through_a_target_to_what_it_sees(backend):
    config = value_config(backend, learner_class=LooksThroughTheTarget, lr=0.1)
    learner = config.framework(backend, compile=quick_mode(backend)).build_learner()
    before = learner.get_weights()
    learner.update(batch(4))
    assert largest_difference(learner.get_weights(), before) == 0.0


def test_a_module_whose_id_has_a_slash_has_a_target_too(backend):
    config = value_config(backend, learner_class=BootstrappingLearner, lr=0.1)
    learner = with_modules(config, "a/b", "b").build_learner()
    before = learner.targets["a/b"].get_state()
    assert list(before) == ["vf.0.weight", "vf.0.bias", "vf.out.weight", "vf.out.bias"]
    learner.update({"a/b": batch(), "b": batch()})
    assert largest_difference(learner.targets["a/b"].get_state(), before) > 1e-3


def test_a_forward_pass_that_is_said_to_be_compiled_is_also_that_of_the_target(backend):
    """From the second update on, Python runs neither. The first one is looked at for wrong broadcasts."""
    learner = bootstrapping(backend)
    learner.config = learner.config.framework(backend, compile="forward_train")
    for n in range(2):
        learner.update(batch(seed=n))
    assert learner.update_mode.startswith("forward_train"), learner.update_mode
    runs = []

    def note(frame, event, argument):
        if event == "call" and frame.f_code is ActorCritic.forward.__code__:
            runs.append(frame.f_lineno)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        learner.update(batch(seed=2))
    finally:
        sys.setprofile(before)
    assert not runs


def own_module(backend):
    """A user's module with one layer in the framework's own way."""
    if backend == "torch":
        import torch

        from plugrad_torch import TorchRLModule

        class Own(TorchRLModule):
            def setup(self):
                self.vf = torch.nn.Linear(3, 1)

            def _forward(self, batch, **kwargs):
                return {Columns.VF_PREDS: self.vf(batch[Columns.OBS])[:, 0]}

        return Own
    if backend == "jax":
        from flax import nnx

        from plugrad_jax import JaxRLModule

        class OwnNnx(JaxRLModule):
            def setup(self):
                self.vf = nnx.Linear(3, 1, rngs=nnx.Rngs(0))

            def _forward(self, batch, **kwargs):
                return {Columns.VF_PREDS: self.vf(batch[Columns.OBS])[:, 0]}

        return OwnNnx
    tf = importlib.import_module("tensorflow")
    from plugrad_tf2 import Tf2RLModule

    class OwnKeras(Tf2RLModule):
        def setup(self):
            self.vf = tf.keras.layers.Dense(1)
            self.vf.build((None, 3))

        def _forward(self, batch, **kwargs):
            return {Columns.VF_PREDS: self.vf(batch[Columns.OBS])[:, 0]}

    return OwnKeras


@pytest.mark.parametrize("mode", ["none", "auto", "complete_update"])
def test_a_users_own_module_lends_itself(backend, mode):
    config = value_config(
        backend, learner_class=BootstrappingLearner, optimizer={"type": "sgd"}, lr=0.1, minibatch_size=8
    )
    spec = RLModuleSpec(module_class=own_module(backend))
    learner = config.rl_module(rl_module_spec=spec).framework(backend, compile=mode).build_learner()
    target, rows = learner.targets[P], batch()
    weights = {name: each + 1.0 for name, each in target.get_state().items()}
    target.set_state(weights)
    before = digest(learner.get_weights())
    kernel, bias = sorted(weights.values(), key=np.ndim, reverse=True)
    later = rows[Columns.NEXT_OBS] @ kernel.reshape(3, 1) + bias
    obs = rows[Columns.OBS] @ (kernel.reshape(3, 1) - 1.0) + bias - 1.0
    loss = np.mean((obs[:, 0] - rows[Columns.REWARDS] - 0.9 * later[:, 0]) ** 2)
    results = learner.update(rows, minibatch_size=16)[P]
    assert results["target_mean"] == pytest.approx(later.mean(), abs=1e-6)
    assert results["total_loss"] == pytest.approx(loss, rel=1e-5)
    assert digest(learner.get_weights()) != before


@pytest.mark.parametrize("door", ["learner", "module"])
def test_the_target_follows_weights_that_are_loaded_alone(backend, door):
    """Those of another backend: a target of random weights would belong to nothing."""
    other = bootstrapping("numpy")
    other.update(batch(seed=3))
    weights = other.get_weights()
    learner = bootstrapping(backend)
    learner.update(batch())
    if door == "learner":
        learner.set_weights(weights)
    else:
        learner.module[P].set_state(weights[P])
    found = learner.get_state("targets")["targets"][P]
    assert largest_difference(found, {name: weights[P][name] for name in found}) == 0
    other.set_weights(weights)
    means = [each.update(batch(seed=1))[P]["target_mean"] for each in (learner, other)]
    assert means[0] == pytest.approx(means[1], abs=1e-5)
