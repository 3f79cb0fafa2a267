"""Several optimizers on a module and one for several modules, in every mode of every backend: numpy's numbers."""

import numpy as np
import pytest
from learning import ValueLearner, digest, largest_difference, ppo_batch, value_config, with_modules
from optimizer_learning import Shared, TwoOptimizers

from plugrad import ALL_MODULES, Columns, MultiRLModuleSpec, RLModuleSpec
from plugrad.errors import OptimizerError
from plugrad.optimizers import SGD

pytestmark = pytest.mark.cross_product

MODES = ["none", "complete_update"]
HALFWAY = {"num_env_steps_sampled_lifetime": 50}


class SharedMomentum(Shared):
    """With a slot, so that a module without rows still moves."""

    @staticmethod
    def make():
        return SGD(momentum=0.9)


def built(backend, learner_class, mode="none", **settings):
    settings = {"lr": [[0, 0.1], [100, 0.0]], "minibatch_size": 8, "grad_clip": 0.1, **settings}
    config = value_config(backend, learner_class=learner_class, **settings)
    return (
        with_modules(config, *("ab" if issubclass(learner_class, Shared) else "a"))
        .framework(backend, compile=mode)
        .build_learner()
    )


def after_updates(learner):
    """With rows of all modules, of one and of all again; norms and rates of the last."""
    whole = {module_id: ppo_batch(16, seed=n) for n, module_id in enumerate(learner.module)}
    learner.update(whole)
    learner.update({"a": ppo_batch(16, seed=2)}, timesteps=HALFWAY)
    results = learner.update(whole)
    kept = {
        module_id: {name: each[name] for name in each if name.startswith("gradients") or "rate" in name}
        for module_id, each in results.items()
    }
    return {**learner.get_state(["rl_module", "optimizer"]), "results": kept}


@pytest.fixture(scope="module", params=[TwoOptimizers, SharedMomentum], ids=lambda each: each.__name__)
def learner_class(request):
    return request.param


@pytest.fixture(scope="module")
def expected(learner_class):
    return after_updates(built("numpy", learner_class))


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_numpys_numbers(backend, learner_class, mode, expected):
    learner = built(backend, learner_class, mode)
    found = after_updates(learner)
    assert learner.update_mode.startswith(mode), learner.update_mode
    assert found["results"].keys() == expected["results"].keys()
    assert largest_difference(found, expected) < 2e-5


class LastLayer(ValueLearner):
    """Steps the value network's last layer alone."""

    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        own = [param for param in params if "vf.out" in self.get_param_ref(param)]
        self.register_optimizer(module_id=module_id, optimizer=SGD(), params=own, lr_or_lr_schedule=0.1)
        self.freeze_parameters(module_id, ["pi", "vf.0"])


LOADS = {
    "set_weights": lambda learner, weights: learner.set_weights(weights),
    "set_state": lambda learner, weights: learner.set_state({"rl_module": weights}),
    "a module's set_state": lambda learner, weights: learner.module["a"].set_state(weights["a"]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("load", LOADS)
def test_a_program_computes_with_the_weights_that_were_loaded_though_no_optimizer_steps_them(
    backend, load, mode
):
    learner, other = (built(backend, LastLayer, mode) for _ in range(2))
    learner.update({"a": ppo_batch(16)})
    doubled = {name: 2.0 * weight for name, weight in learner.get_weights()["a"].items()}
    other.set_state({**learner.get_state(), "rl_module": {"a": doubled}})
    LOADS[load](learner, {"a": doubled})
    for each in (learner, other):
        each.update({"a": ppo_batch(16, seed=1)})
    assert largest_difference(learner.get_weights(), other.get_weights()) < 1e-6


def test_a_shared_optimizer_reports_under_all_modules_and_goes_through_a_state(backend):
    learner, other = built(backend, SharedMomentum), built(backend, SharedMomentum, seed=9)
    batch = {"a": ppo_batch(16)}
    results = learner.update(batch)
    assert set(results[ALL_MODULES]) >= {
        "gradients_default_optimizer_global_norm",
        "default_optimizer_learning_rate",
    }
    assert not any(name.startswith("gradients") for name in results["a"])
    other.set_state(learner.get_state())
    for each in (learner, other):
        each.update(batch)
    assert digest(learner.get_state()) == digest(other.get_state())


# --- a parameter of two modules ---


def with_one_encoder(backend):
    """A module class whose instances share one layer, made with the first of them."""
    kept = []
    if backend == "torch":
        import torch

        from plugrad_torch import TorchRLModule

        class Sharing(TorchRLModule):
            def setup(self):
                torch.manual_seed(0)
                kept.append(kept[0] if kept else torch.nn.Linear(3, 4))
                self.encoder, self.head = kept[0], torch.nn.Linear(4, 1)

            def _forward(self, batch, **kwargs):
                return {Columns.VF_PREDS: self.head(torch.tanh(self.encoder(batch[Columns.OBS])))[:, 0]}

        return Sharing
    if backend == "jax":
        from flax import nnx

        from plugrad_jax import JaxRLModule

        class SharingNnx(JaxRLModule):
            def setup(self):
                kept.append(kept[0] if kept else nnx.Linear(3, 4, rngs=nnx.Rngs(0)))
                self.encoder, self.head = kept[0], nnx.Linear(4, 1, rngs=nnx.Rngs(1))

            def _forward(self, batch, **kwargs):
                return {Columns.VF_PREDS: self.head(nnx.tanh(self.encoder(batch[Columns.OBS])))[:, 0]}

        return SharingNnx
    import tensorflow as tf

    from plugrad_tf2 import Tf2RLModule

    class SharingKeras(Tf2RLModule):
        def setup(self):
            tf.keras.utils.set_random_seed(0)
            kept.append(kept[0] if kept else tf.keras.layers.Dense(4, activation="tanh"))
            self.encoder, self.head = kept[0], tf.keras.layers.Dense(1)
            self.head(self.encoder(tf.zeros((1, 3))))

        def _forward(self, batch, **kwargs):
            return {Columns.VF_PREDS: self.head(self.encoder(batch[Columns.OBS]))[:, 0]}

    return SharingKeras


class OneEncoder(Shared):
    """One optimizer over all parameters of both, each once."""

    def configure_optimizers(self):
        params = {self.get_param_ref(p): p for m in "ab" for p in self.get_parameters(self.module[m])}
        self.register_optimizer(optimizer=SGD(), params=list(params.values()), lr_or_lr_schedule=0.1)


def sharing(backend, mode="none"):
    config = value_config(backend, learner_class=OneEncoder).framework(backend, compile=mode)
    spec = RLModuleSpec(
        module_class=with_one_encoder(backend),
        observation_space=config.observation_space,
        action_space=config.action_space,
    )
    specs = MultiRLModuleSpec(rl_module_specs={"a": spec, "b": spec})
    return config.rl_module(rl_module_spec=specs).build_learner()


def parts(learner, module_id):
    """Kernel [3, 4] and bias [4] of the encoder, kernel [4] and bias of the head."""
    state = sorted(learner.get_weights()[module_id].values(), key=lambda each: (each.ndim, each.size))
    head_bias, bias, head, kernel = state
    return kernel if kernel.shape == (3, 4) else kernel.T, bias, head.reshape(4), head_bias


def encoder_slope(learner, module_id, batch):
    kernel, bias, head, head_bias = parts(learner, module_id)
    obs, targets = batch[Columns.OBS], batch[Columns.VALUE_TARGETS]
    hidden = np.tanh(obs @ kernel + bias)
    error = 2.0 * (hidden @ head + head_bias - targets) / len(obs)
    return obs.T @ (error[:, None] * head * (1.0 - hidden**2))


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_two_modules_share_an_encoder_and_sum_their_gradients(backend, mode):
    learner, batch = sharing(backend, mode), {"a": ppo_batch(16), "b": ppo_batch(16, seed=1)}
    before = parts(learner, "a")[0]
    slope = sum(encoder_slope(learner, module_id, rows) for module_id, rows in batch.items())
    learner.update(batch)
    assert learner.update_mode.startswith(mode), learner.update_mode
    for module_id in "ab":
        np.testing.assert_allclose(parts(learner, module_id)[0], before - 0.1 * slope, rtol=0, atol=1e-6)
    before, slope = parts(learner, "b")[0], encoder_slope(learner, "b", batch["b"])
    learner.update({"b": batch["b"]})
    np.testing.assert_allclose(parts(learner, "a")[0], before - 0.1 * slope, rtol=0, atol=1e-6)


def test_an_optimizer_of_each_module_cannot_both_step_the_encoder(backend):
    class Each(OneEncoder):
        def configure_optimizers(self):
            for module_id in "ab":
                params = self.get_parameters(self.module[module_id])
                self.register_optimizer(module_id=module_id, optimizer=SGD(), params=params)

    config = value_config(backend, learner_class=Each)
    spec = sharing(backend).config.rl_module_spec
    with pytest.raises(
        OptimizerError, match=r"'a/encoder.*' is stepped by optimizer 'a_default_optimizer' already"
    ):
        config.rl_module(rl_module_spec=spec).build_learner()
