"""Every public member of a Learner, once as it is meant and once for each documented error, on every backend.

The tables are the test: `USES` has each member's right use, `REFUSALS` its errors. A member that is in
neither fails the last test.
"""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import stand_ins
from learning import (
    OBSERVATIONS,
    TWO_ACTIONS,
    digest,
    largest_difference,
    ppo_batch,
    ppo_config,
    quick,
    weights,
    with_modules,
)

from plugrad import (
    ALL_MODULES,
    DEFAULT_MODULE_ID,
    DEFAULT_OPTIMIZER,
    Columns,
    Learner,
    MultiAgentBatch,
    MultiRLModule,
    RLModuleSpec,
    SingleAgentEpisode,
)
from plugrad.errors import (
    BatchError,
    ConfigError,
    NonFiniteError,
    NotBuiltError,
    OptimizerError,
    PluginError,
    PlugradError,
    RestoreMismatchError,
    ResultError,
    UnknownModuleError,
)
from plugrad.hooks.backend_spec import Capability
from plugrad.optimizers import make_optimizer
from plugrad_ppo import PPOConfig, PPOLearner
from plugrad_rllib.additional import OlderUpdates
from plugrad_rllib.learner import OlderLearner
from plugrad_rllib.saving import OlderSaving

P = DEFAULT_MODULE_ID
OPTIMIZER = f"{P}_{DEFAULT_OPTIMIZER}"
SPEC = RLModuleSpec(
    observation_space=OBSERVATIONS, action_space=TWO_ACTIONS, model_config={"fcnet_hiddens": [4]}
)


def make(backend, *, build=True, **training):
    learner = PPOLearner(config=quick(ppo_config(backend, **{"lr": 0.01, "grad_clip": 0.5, **training})))
    if build:
        learner.build()
    return learner


@pytest.fixture
def learner(backend):
    return make(backend)


def params(learner, module_id=P):
    return learner.get_parameters(learner.module[module_id])


def ones(learner):
    """A gradient of ones for every parameter, in the framework's tensors."""
    return {learner.get_param_ref(param): learner.ops.ones(tuple(param.shape)) for param in params(learner)}


def episode(steps=6):
    rng = np.random.default_rng(0)
    return SingleAgentEpisode(
        observations=rng.normal(size=(steps + 1, 3)).astype(np.float32),
        actions=rng.integers(2, size=steps),
        rewards=np.ones(steps),
        terminated=True,
        truncated=False,
        extra_model_outputs={
            Columns.ACTION_LOGP: np.full(steps, -0.7, np.float32),
            Columns.ACTION_DIST_INPUTS: np.zeros((steps, 2), np.float32),
        },
    )


USES = {}


def use(function):
    """A right use of the member that the function is named after (`use_x`, `use__x` for `_x`)."""
    USES[function.__name__.removeprefix("use_")] = function
    return function


# --- life -------------------------------------------------------------------------------------------------------


@use
def use_build(learner):
    before = learner.module
    learner.build()
    assert learner.module is before


@use
def use__check_is_built(learner):
    assert learner._check_is_built() is True
    assert PPOLearner(config=learner.config)._check_is_built(error=False) is False


@use
def use__make_module(learner):
    made = learner._make_module()
    assert isinstance(made, MultiRLModule)
    assert list(made) == [P]


@use
def use_module(learner):
    assert isinstance(learner.module, MultiRLModule)
    assert learner.module[P].action_space == TWO_ACTIONS


@use
def use_config(learner):
    assert learner.config == learner.config.copy()
    assert learner.config.lr == 0.01


@use
def use_device(learner):
    info = learner.backend_info
    assert learner.device == (stand_ins.DEVICES[info.name] if stand_ins.are_asked_for() else info.devices[0])


@use
def use_distributed(learner):
    assert learner.distributed is False


@use
def use_supports(learner):
    declared = learner.backend_info.capabilities
    assert [each for each in Capability if learner.supports(each)] == [
        each for each in Capability if each in declared
    ]
    assert learner.supports("fused_step") == (Capability.FUSED_STEP in declared)


@use
def use_ops(learner):
    assert float(learner._convert_to_numpy(learner.ops.exp(learner.ops.zeros(())))) == 1.0


@use
def use_metrics(learner):
    results = learner.update(ppo_batch())
    assert learner.metrics.results == results


@use
def use_update_mode(learner):
    learner.update(ppo_batch())
    assert learner.update_mode.startswith("none: ")


@use
def use_apply(learner):
    assert learner.apply(lambda it, x, y: (it, x, y), 1, y=2) == (learner, 1, 2)


@use
def use_shutdown(learner):
    assert learner.shutdown() is None
    assert learner.shutdown() is None


@use
def use_framework(learner):
    assert PPOLearner.framework is None  # written for every framework


@use
def use_TOTAL_LOSS_KEY(learner):
    assert learner.update(ppo_batch())[P][learner.TOTAL_LOSS_KEY] == pytest.approx(
        learner.metrics.results[P]["total_loss"]
    )


# --- act --------------------------------------------------------------------------------------------------------


@use
def use_get_policy(learner):
    action, state = learner.get_policy().predict(ppo_batch(5)[Columns.OBS][0])
    assert action in learner.module[P].action_space
    assert state is None


@use
def use_compute_actions(learner):
    obs = ppo_batch(5)[Columns.OBS]
    columns = learner.compute_actions(obs)
    assert columns[Columns.ACTIONS].shape == (5,)
    assert columns[Columns.ACTION_LOGP].shape == (5,)
    assert columns[Columns.ACTION_DIST_INPUTS].shape == (5, 2)
    assert columns[Columns.VF_PREDS].shape == (5,)
    assert {type(each) for each in columns.values()} == {np.ndarray}
    rngs = [np.random.default_rng(3) for _ in range(2)]
    first, second = (learner.compute_actions(obs, rng=rng, values=rng is rngs[0]) for rng in rngs)
    assert first.pop(Columns.VF_PREDS).shape == (5,)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    greedy = learner.compute_actions(obs, explore=False, module_id=P)
    np.testing.assert_array_equal(greedy[Columns.ACTIONS], columns[Columns.ACTION_DIST_INPUTS].argmax(-1))


# --- update -----------------------------------------------------------------------------------------------------


@use
def use_update(learner):
    batch, before = ppo_batch(64), weights(learner)
    cut = {"minibatch_size": 25, "num_epochs": 2, "shuffle_batch_per_epoch": True}
    results = learner.update(batch, timesteps={"num_env_steps_sampled_lifetime": 64}, **cut)
    assert set(results) == {P, ALL_MODULES}
    assert results[P]["num_module_steps_trained"] == 64
    assert {type(each) for values in results.values() for each in values.values()} <= {int, float}
    assert np.abs(weights(learner) - before).max() > 0.0
    other = make(learner.config.backend)
    other.update({P: batch}, num_total_minibatches=2)
    other.update(MultiAgentBatch({P: batch}, 30))
    assert other.update(episodes=[episode(), episode()])[P]["num_module_steps_trained"] == 12
    assert other.metrics.results[P]["num_module_steps_trained_lifetime"] == 64 + 64 + 12


@use
def use_update_from_batch(learner):
    same = make(learner.config.backend)
    results = learner.update_from_batch(ppo_batch(), minibatch_size=8)
    expected = same.update(ppo_batch(), minibatch_size=8)
    assert results[P]["total_loss"] == expected[P]["total_loss"]
    assert digest(learner.get_state()) == digest(same.get_state())


@use
def use_update_from_episodes(learner):
    same = make(learner.config.backend)
    results, expected = learner.update_from_episodes([episode()]), same.update(episodes=[episode()])
    assert results[P]["total_loss"] == expected[P]["total_loss"]
    assert digest(learner.get_state()) == digest(same.get_state())


@use
def use__update(learner):
    if learner.config.backend != "tf2":
        before = weights(learner)
        fwd_out, losses, metrics = learner._update({P: learner._convert_batch_type(ppo_batch())})
        assert Columns.VF_PREDS in fwd_out[P]
        assert np.isfinite(float(losses[P]))
        assert any("policy_loss" in name for name in metrics)
        assert np.abs(weights(learner) - before).max() > 0.0
    else:
        graph_of_update(learner)


def graph_of_update(learner):
    """TensorFlow never steps eagerly: `_update` is called as the core calls it, while a program is traced."""
    import tensorflow as tf

    batch = {P: learner._convert_batch_type(ppo_batch())}
    before, seen = weights(learner), []

    @tf.function
    def traced():
        fwd_out, losses, metrics = learner._update(batch)
        seen.append((set(fwd_out[P]), set(losses), set(metrics)))
        return losses[P]

    assert np.isfinite(float(traced()))
    assert Columns.VF_PREDS in seen[0][0]
    assert np.abs(weights(learner) - before).max() > 0.0


@use
def use_before_gradient_based_update(learner):
    assert learner.before_gradient_based_update(timesteps={}) is None


@use
def use_after_gradient_based_update(learner):
    scheduled = make(learner.config.backend, lr=[[0, 0.1], [100, 0.0]])
    scheduled.after_gradient_based_update(timesteps={"num_env_steps_sampled_lifetime": 50})
    assert scheduled._get_optimizer_lr(scheduled.get_optimizer()) == pytest.approx(0.05)
    scheduled.after_gradient_based_update(timesteps={})
    assert scheduled._get_optimizer_lr(scheduled.get_optimizer()) == pytest.approx(0.05)


@use
def use_should_module_be_updated(learner):
    assert learner.should_module_be_updated(P) is True
    config = learner.config.multi_agent(policies_to_train=[])
    other = PPOLearner(config=config)
    other.build()
    assert other.should_module_be_updated(P, ppo_batch()) is False


@use
def use__convert_batch_type(learner):
    tensors = learner._convert_batch_type({"x": np.ones((2, 3)), "n": np.arange(2)})
    assert "float32" in str(tensors["x"].dtype)
    assert tuple(tensors["x"].shape) == (2, 3)
    np.testing.assert_array_equal(learner._convert_to_numpy(tensors)["n"], [0, 1])


# --- loss -------------------------------------------------------------------------------------------------------


def forward(learner):
    batch = learner._convert_batch_type(ppo_batch())
    return batch, learner.module[P].forward_train(batch)


@use
def use_compute_losses(learner):
    batch, outputs = forward(learner)
    losses = learner.compute_losses(fwd_out={P: outputs}, batch={P: batch})
    one = learner.compute_loss_for_module(
        module_id=P, config=learner.config_view(P), batch=batch, fwd_out=outputs
    )
    assert set(losses) == {P}
    assert float(learner._convert_to_numpy(losses[P])) == float(learner._convert_to_numpy(one))


@use
def use_compute_loss_for_module(learner):
    batch, outputs = forward(learner)
    config = learner.config.get_config_for_module(P)  # a user's call may give the plain config
    loss = learner.compute_loss_for_module(module_id=P, config=config, batch=batch, fwd_out=outputs)
    assert tuple(loss.shape) == ()


# --- optimizers -------------------------------------------------------------------------------------------------


class Bare(PPOLearner):
    """Registers nothing by itself."""

    def configure_optimizers(self):
        pass


def bare(learner):
    made = Bare(config=learner.config)
    made.build()
    return made


@use
def use_configure_optimizers(learner):
    made = bare(learner)
    PPOLearner.configure_optimizers(made)
    assert made.get_optimizers_for_module(P)[0][0] == DEFAULT_OPTIMIZER


@use
def use_configure_optimizers_for_module(learner):
    made = bare(learner)
    made.configure_optimizers_for_module(P, config=learner.config.training(lr=0.5))
    assert made._get_optimizer_lr(made.get_optimizer()) == 0.5
    made = bare(learner)
    made.configure_optimizers_for_module(P)
    assert made._get_optimizer_lr(made.get_optimizer()) == pytest.approx(0.01)


@use
def use_freeze_parameters(learner):
    class Frozen(PPOLearner):
        def configure_optimizers_for_module(self, module_id, config=None):
            values = [each for each in params(self) if "/vf" in self.get_param_ref(each)]
            self.register_optimizer(
                module_id=module_id,
                optimizer=make_optimizer({"type": "sgd"}),
                params=values,
                lr_or_lr_schedule=1.0,
            )
            self.freeze_parameters(module_id, ["pi"])

    made = Frozen(config=learner.config)
    made.build()
    before = made.get_weights()[P]
    made.update(ppo_batch())
    changed = {
        name.split(".")[0] for name, value in made.get_weights()[P].items() if (value != before[name]).any()
    }
    assert changed == {"vf"}


@use
def use_register_optimizer(learner):
    made, rate = bare(learner), [[0, 0.25], [10, 0.5]]
    own = make_optimizer({"type": "sgd"})
    made.register_optimizer(
        module_id=P, optimizer_name="mine", optimizer=own, params=params(made), lr_or_lr_schedule=rate
    )
    assert made.get_optimizer(P, "mine") is own
    assert made._get_optimizer_lr(own) == 0.25
    made.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 10})
    assert made.metrics.results[P]["mine_learning_rate"] == 0.5


@use
def use_get_optimizer(learner):
    assert learner.get_optimizer() is learner.get_optimizer(P, DEFAULT_OPTIMIZER)
    assert learner.get_optimizer(optimizer_name=OPTIMIZER) is learner.get_optimizer()


@use
def use_get_optimizers_for_module(learner):
    assert learner.get_optimizers_for_module(P) == [(DEFAULT_OPTIMIZER, learner.get_optimizer())]
    assert learner.get_optimizers_for_module() == learner.get_optimizers_for_module(ALL_MODULES)
    assert len(learner.get_optimizers_for_module()) == 1


@use
def use_get_parameters(learner):
    assert isinstance(params(learner), list)
    shapes = [tuple(param.shape) for param in params(learner)]
    assert shapes == [each.shape for each in learner.get_weights()[P].values()]


@use
def use_get_param_ref(learner):
    refs = [learner.get_param_ref(param) for param in params(learner)]
    assert refs == [f"{P}/{name}" for name in learner.get_weights()[P]]
    assert len({*map(hash, refs)}) == len(refs)


@use
def use_filter_param_dict_for_optimizer(learner):
    mine = learner.filter_param_dict_for_optimizer({**ones(learner), "x": 1}, learner.get_optimizer())
    assert set(mine) == set(ones(learner))
    first, *_ = ones(learner)
    assert set(learner.filter_param_dict_for_optimizer({first: None}, learner.get_optimizer())) == set()


@use
def use__check_registered_optimizer(learner):
    assert learner._check_registered_optimizer(make_optimizer({"type": "adam"}), params(learner)) is None


@use
def use__get_optimizer_lr(learner):
    rate = learner._get_optimizer_lr(learner.get_optimizer())
    assert type(rate) is float
    assert rate == pytest.approx(0.01)


@use
def use__set_optimizer_lr(learner):
    learner._set_optimizer_lr(learner.get_optimizer(), 0.0)
    before = weights(learner)
    learner.update(ppo_batch())
    np.testing.assert_array_equal(weights(learner), before)


@use
def use__get_clip_function(learner):
    clip = learner._get_clip_function()
    clipped, norm = clip(ones(learner), grad_clip=1.0, grad_clip_by="global_norm")
    size = weights(learner).size
    assert float(learner._convert_to_numpy(norm)) == pytest.approx(size**0.5, rel=1e-6)
    for ref in ones(learner):
        np.testing.assert_allclose(learner._convert_to_numpy(clipped[ref]), size**-0.5, rtol=1e-5)


@use
def use__is_module_compatible_with_learner(learner):
    assert learner._is_module_compatible_with_learner(learner.module[P]) is True
    assert learner._is_module_compatible_with_learner(object()) is False


@use
def use__get_tensor_variable(learner):
    variable = learner._get_tensor_variable(1.5)
    variable.assign(2.5)
    assert variable.numpy() == np.float32(2.5)
    assert learner._get_tensor_variable(3).numpy().dtype == np.int32
    assert learner._get_tensor_variable([1, 2], dtype="float32", trainable=True).numpy().tolist() == [1, 2]


@use
def use_get_noise_columns(learner):
    assert learner.get_noise_columns(P) == {}


@use
def use_get_target_parameters(learner):
    assert list(learner.get_target_parameters(P)) == []
    assert learner.targets == {}


# --- gradients --------------------------------------------------------------------------------------------------


def gradients(learner):
    """Those of PPO's loss, as a user of the framework takes them."""
    if learner.config.backend == "torch":
        batch, outputs = forward(learner)
        return learner.compute_gradients(learner.compute_losses(fwd_out={P: outputs}, batch={P: batch}))
    if learner.config.backend == "jax":

        def losses():
            batch, outputs = forward(learner)
            return learner.compute_losses(fwd_out={P: outputs}, batch={P: batch}), None

        variables = [each.parameters for each in learner.registered_optimizers.values()]
        return learner._differentiate(variables, losses)[2]
    import tensorflow as tf

    with tf.GradientTape() as tape:
        batch, outputs = forward(learner)
        losses = learner.compute_losses(fwd_out={P: outputs}, batch={P: batch})
    return learner.compute_gradients(losses, gradient_tape=tape)


@use
def use_compute_gradients(learner):
    found = gradients(learner)
    assert set(found) == set(ones(learner))
    for param in params(learner):
        assert tuple(found[learner.get_param_ref(param)].shape) == tuple(param.shape)
    assert max(np.abs(learner._convert_to_numpy(each)).max() for each in found.values()) > 0.0


def norm(learner, found):
    squares = [np.square(learner._convert_to_numpy(each)).sum() for each in found.values()]
    return float(np.sqrt(sum(squares)))


@use
def use_postprocess_gradients(learner):
    tight = make(learner.config.backend, grad_clip=1e-3)
    assert norm(tight, tight.postprocess_gradients(gradients(tight))) == pytest.approx(1e-3, rel=1e-2)


@use
def use_postprocess_gradients_for_module(learner):
    tight = make(learner.config.backend, grad_clip=1e-3)
    found = tight.postprocess_gradients_for_module(module_id=P, module_gradients_dict=ones(tight))
    assert norm(tight, found) == pytest.approx(1e-3, rel=1e-2)
    loose = tight.config.training(grad_clip=None)
    found = tight.postprocess_gradients_for_module(
        module_id=P, config=loose, module_gradients_dict=ones(tight)
    )
    assert norm(tight, found) == pytest.approx(weights(tight).size ** 0.5, rel=1e-5)


@use
def use_apply_gradients(learner):
    before = weights(learner)
    learner.apply_gradients(ones(learner))
    np.testing.assert_allclose(weights(learner), before - 0.01, atol=1e-6)  # Adam's first step is the rate
    first, *rest = ones(learner)
    learner.apply_gradients({first: ones(learner)[first], **dict.fromkeys(rest)})


# --- modules ----------------------------------------------------------------------------------------------------


@use
def use_add_module(learner):
    spec = learner.add_module(module_id="b", module_spec=SPEC, config_overrides={"lr": 0.5})
    assert set(spec.rl_module_specs) == {P, "b"}
    assert learner._get_optimizer_lr(learner.get_optimizer("b")) == 0.5
    assert set(learner.update({P: ppo_batch(), "b": ppo_batch()})) == {P, "b", ALL_MODULES}
    learner.add_module(module_id="c", module_spec=SPEC, new_should_module_be_updated=["c"])
    assert learner.should_module_be_updated("b") is False


@use
def use_remove_module(learner):
    learner.add_module(module_id="b", module_spec=SPEC)
    spec = learner.remove_module(P, new_should_module_be_updated=["b"])
    assert set(spec.rl_module_specs) == {"b"}
    assert set(learner.update({"b": ppo_batch()})) == {"b", ALL_MODULES}


# --- results ----------------------------------------------------------------------------------------------------


class Reporting(PPOLearner):
    """Reports inside its loss, at the edge, and in the compiled results."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        self.register_metric(module_id, "twice", 2.0 * loss)
        self.register_metrics(module_id, {"seven": 7, "half": 0.5 * loss})
        return loss

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        self.register_metric(ALL_MODULES, "edge", np.arange(2))

    def compile_results(self, *, batch, fwd_out, loss_per_module, metrics_per_module):
        results = super().compile_results(
            batch=batch,
            fwd_out=fwd_out,
            loss_per_module=loss_per_module,
            metrics_per_module=metrics_per_module,
        )
        results[P]["rows"] = len(batch[P][Columns.OBS])
        results[P]["loss_again"] = loss_per_module[P]
        return results


def reporting(learner):
    made = Reporting(config=learner.config)
    made.build()
    return made.update(ppo_batch(10))


@use
def use_register_metric(learner):
    results = reporting(learner)
    assert results[P]["twice"] == pytest.approx(2.0 * results[P]["total_loss"])
    np.testing.assert_array_equal(results[ALL_MODULES]["edge"], [0, 1])


@use
def use_register_metrics(learner):
    results = reporting(learner)
    assert results[P]["seven"] == 7.0
    assert results[P]["half"] == pytest.approx(0.5 * results[P]["total_loss"])
    assert type(results[P]["seven"]) is float


@use
def use_compile_results(learner):
    results = reporting(learner)
    assert results[P]["rows"] == 10
    assert results[P]["loss_again"] == results[P]["total_loss"]
    assert "num_module_steps_trained" in results[P]


@use
def use__check_result(learner):
    assert learner._check_result({ALL_MODULES: {}, P: {}}) is None


# --- state ------------------------------------------------------------------------------------------------------


@use
def use_get_state(learner):
    whole = learner.get_state()
    assert set(whole) >= {"rl_module", "optimizer", "counters", "streams", "coefficients"}
    assert set(learner.get_state("rl_module")) == {"rl_module"}
    assert set(learner.get_state(["rl_module", "optimizer"])) == {"rl_module", "optimizer"}
    assert set(learner.get_state(not_components="rl_module")) == set(whole) - {"rl_module"}
    assert set(whole["optimizer"]) == {OPTIMIZER}
    assert digest(whole["rl_module"]) == digest(learner.get_weights())


@use
def use_set_state(learner):
    other = make(learner.config.backend)
    learner.update(ppo_batch())
    other.set_state(learner.get_state())
    assert digest(other.get_state()) == digest(learner.get_state())
    moved = {P: {name: each + 1 for name, each in learner.get_weights()[P].items()}}
    other.set_state({"rl_module": moved})
    assert largest_difference(other.get_weights(), moved) == 0.0


@use
def use_get_weights(learner):
    taken = learner.get_weights()
    kept = {name: each.copy() for name, each in taken[P].items()}
    learner.update(ppo_batch())
    assert digest(taken[P]) == digest(kept)


@use
def use_set_weights(learner):
    given = {P: {name: np.zeros_like(each) for name, each in learner.get_weights()[P].items()}}
    learner.set_weights(given)
    assert not weights(learner).any()


# --- disk -------------------------------------------------------------------------------------------------------


@use
def use_get_metadata(learner):
    metadata = learner.get_metadata()
    assert metadata["kind"] == "learner"
    assert metadata["module_ids"] == [P]
    assert metadata["config"] == learner.config.to_dict()


@use
def use_save_to_path(learner, tmp_path):
    assert learner.save_to_path(str(tmp_path / "c"), keep=1) == str(tmp_path / "c")
    learner.save_to_path(tmp_path / "c", keep=1)
    assert len(list((tmp_path / "c").glob("save-*"))) == 1


@use
def use_restore_from_path(learner, tmp_path):
    learner.update(ppo_batch())
    learner.save_to_path(tmp_path / "c")
    saved = learner.get_state()
    learner.update(ppo_batch())
    learner.restore_from_path(tmp_path / "c", component="rl_module")
    assert digest(learner.get_weights()) == digest(saved["rl_module"])
    assert digest(learner.get_state()) != digest(saved)
    learner.restore_from_path(tmp_path / "c")
    assert digest(learner.get_state()) == digest(saved)


@use
def use_from_checkpoint(learner, tmp_path):
    learner.update(ppo_batch())
    learner.save_to_path(tmp_path / "c")
    again = PPOLearner.from_checkpoint(tmp_path / "c")
    assert digest(again.get_state()) == digest(learner.get_state())
    assert type(again) is PPOLearner
    assert isinstance(again.config, PPOConfig)


@pytest.mark.parametrize("member", USES)
def test_a_member_does_what_it_says(learner, member, tmp_path):
    assert_use = USES[member]
    assert_use(*(learner, tmp_path)[: assert_use.__code__.co_argcount])


# --- errors -----------------------------------------------------------------------------------------------------


class Returning(PPOLearner):
    """Its results are what the test says."""

    answer = None

    def compile_results(self, **kwargs):
        return self.answer


def returning(learner, answer):
    made = Returning(config=learner.config)
    made.build()
    made.answer = answer
    made.update(ppo_batch())


def register(learner, **changes):
    made = bare(learner)
    arguments = {"module_id": P, "optimizer": make_optimizer({"type": "adam"}), "params": params(made)}
    made.register_optimizer(**{**arguments, "lr_or_lr_schedule": 0.1, **changes})
    return made


def register_twice(learner):
    made = register(learner)
    made.register_optimizer(
        module_id=P, optimizer=make_optimizer({"type": "adam"}), params=params(made), lr_or_lr_schedule=0.1
    )


def damaged(learner):
    state = learner.get_state()
    first, second, *_ = state["rl_module"][P]
    del state["rl_module"][P][first]
    state["rl_module"][P][second] = np.zeros(3, np.float32)
    state["optimizer"][OPTIMIZER]["slots"]["z"] = np.zeros(2, np.float32)
    return state


def unlearned(config):
    """A config of no algorithm needs a loss."""
    learner = Learner(config=config)
    learner.build()


def nan_batch():
    batch = ppo_batch()
    batch[Columns.ADVANTAGES][3] = np.nan
    return batch


REFUSALS = [
    ("supports", lambda it: it.supports("xlaa"), PluginError, "no capability 'xlaa'.*xla"),
    ("build", lambda it: make(it.config.backend + "x"), LookupError, "no backend"),
    (
        "_check_is_built",
        lambda it: PPOLearner(config=it.config).update(ppo_batch()),
        NotBuiltError,
        "build()",
    ),
    (
        "compute_actions",
        lambda it: it.compute_actions(np.zeros((1, 3)), module_id="x"),
        UnknownModuleError,
        "'x'",
    ),
    (
        "compute_actions",
        lambda it: it.compute_actions(np.zeros(3, np.float32)),
        BatchError,
        r"'default_policy', column 'obs': expected shape \[B, 3\], found shape \[3\]",
    ),
    (
        "compute_values",
        lambda it: it.compute_values(np.zeros((2, 4), np.float32)),
        BatchError,
        r"'obs': expected shape \[B, 3\], found shape \[2, 4\]",
    ),
    (
        "update",
        lambda it: it.update(episodes=[replace(episode(), observations=np.zeros((7, 4), np.float32))]),
        BatchError,
        r"'obs': expected shape \[B, 3\], found shape \[7, 4\]",
    ),
    ("update", lambda it: it.update(), BatchError, "neither"),
    (
        "update",
        lambda it: it.update({"p7": ppo_batch()}),
        UnknownModuleError,
        "'p7'.*the learner has: default_policy",
    ),
    ("update", lambda it: it.update(ppo_batch(0)), BatchError, "no rows"),
    ("update", lambda it: it.update({}), BatchError, "no rows"),
    ("update", lambda it: it.update(ppo_batch(), num_epochs=0), ConfigError, "num_epochs=0"),
    ("update", lambda it: it.update(ppo_batch(8), minibatch_size=9), BatchError, "minibatch_size=9"),
    ("update", lambda it: it.update(nan_batch()), NonFiniteError, "'advantages'.*the update was undone"),
    ("update", lambda it: it.update({Columns.OBS: ppo_batch()[Columns.OBS]}), BatchError, "action"),
    ("update_mode", lambda it: it.config.framework(compile="fast"), ConfigError, "complete_update"),
    ("register_optimizer", register_twice, OptimizerError, "has an optimizer 'default_optimizer' already"),
    (
        "register_optimizer",
        lambda it: register(it, params=tuple(params(it))),
        OptimizerError,
        "must be a list",
    ),
    ("register_optimizer", lambda it: register(it, params=[]), OptimizerError, "must be a list"),
    (
        "register_optimizer",
        lambda it: register(it, lr_or_lr_schedule=[[1, 0.1]]),
        ConfigError,
        "lr|schedule|timestep",
    ),
    (
        "_check_registered_optimizer",
        lambda it: it._check_registered_optimizer(3, params(it)),
        OptimizerError,
        "int",
    ),
    (
        "get_optimizer",
        lambda it: it.get_optimizer("x"),
        KeyError,
        f"no optimizer 'x_default_optimizer'.*{OPTIMIZER}",
    ),
    (
        "get_param_ref",
        lambda it: it.get_param_ref(params(make(it.config.backend))[0]),
        OptimizerError,
        "no module",
    ),
    (
        "filter_param_dict_for_optimizer",
        lambda it: it.filter_param_dict_for_optimizer({}, object()),
        OptimizerError,
        "is not registered with this learner",
    ),
    ("add_module", lambda it: it.add_module(module_id=P, module_spec=SPEC), ConfigError, "already"),
    ("add_module", lambda it: it.add_module(module_id="a/b", module_spec=SPEC), ConfigError, "a/b"),
    (
        "add_module",
        lambda it: it.add_module(module_id="b", module_spec=SPEC, new_should_module_be_updated=["c"]),
        ConfigError,
        "no module 'c'",
    ),
    ("remove_module", lambda it: it.remove_module("x"), KeyError, "no module 'x'"),
    ("remove_module", lambda it: it.remove_module(P), ConfigError, "only module"),
    ("compile_results", lambda it: returning(it, [1]), ResultError, "found list"),
    ("_check_result", lambda it: it._check_result({P: {}}), ValueError, ALL_MODULES),
    (
        "_check_result",
        lambda it: it._check_result({ALL_MODULES: {}, "x": {}}),
        ResultError,
        "'x' is no module",
    ),
    ("get_state", lambda it: it.get_state("rl_modul"), ConfigError, "rl_module"),
    (
        "set_state",
        lambda it: it.set_state(damaged(it)),
        RestoreMismatchError,
        "missing: .*unexpected: .*mismatched: ",
    ),
    ("set_state", lambda it: it.set_state({"weights": {}}), RestoreMismatchError, "unexpected: weights"),
    ("set_weights", lambda it: it.set_weights({"x": {}}), KeyError, "no module 'x'"),
    (
        "restore_from_path",
        lambda it: it.restore_from_path("/nowhere/at/all"),
        PlugradError,
        "/nowhere/at/all",
    ),
    ("compute_loss_for_module", lambda it: unlearned(quick(plain(it))), PlugradError, "has no loss"),
]


def plain(learner):
    from learning import PlainConfig

    return (
        PlainConfig()
        .framework(learner.config.backend)
        .environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
    )


@pytest.fixture(scope="module")
def refusing(backend):
    """One learner for all misuses, since none changes it."""
    return make(backend)


@pytest.mark.parametrize(
    ("member", "misuse", "error", "says"), REFUSALS, ids=[f"{n}-{row[0]}" for n, row in enumerate(REFUSALS)]
)
def test_an_error_names_what_is_wrong_and_changes_nothing(refusing, member, misuse, error, says):
    before = digest(refusing.get_state())
    with pytest.raises(error, match=says) as caught:
        misuse(refusing)
    assert isinstance(caught.value, PlugradError)
    assert digest(refusing.get_state()) == before


def test_a_wrong_result_undoes_the_update(backend):
    learner = Returning(config=quick(ppo_config(backend)))
    learner.build()
    before = digest(learner.get_state())
    with pytest.raises(ResultError):
        learner.update(ppo_batch())
    assert digest(learner.get_state()) == before


def test_several_modules_add_up_to_all_modules(backend):
    learner = with_modules(quick(ppo_config(backend)), "a", "b").build_learner()
    results = learner.update(MultiAgentBatch({"a": ppo_batch(8), "b": ppo_batch(6)}, 8))
    assert results["a"]["num_module_steps_trained"] == 8
    assert results["b"]["num_module_steps_trained"] == 6
    assert results[ALL_MODULES]["num_env_steps_trained"] == 8


def test_spaces_of_an_environment_are_enough(backend):
    learner = PPOConfig().framework(backend).build_learner(env=gym.make("CartPole-v1"))
    assert learner.module[P].observation_space.shape == (4,)


def test_every_public_member_of_the_learner_stands_in_the_table():
    """A new member needs a row; what this test does not know is not promised."""
    elsewhere = {
        "add_module",
        "compute_values",  # beside compute_actions, for connectors
        "compute_values_of_episodes",
        "config_view",
        *("drop_gradients", "forward_backward", "optim_step"),  # test_verbs_on_backends.py
        "forget_programs",
        "guard",
        *("hvp", "jvp"),  # test_second_derivatives.py
        "is_guarded",
        "layouts",
        "notify",
        "register_state",  # test_plugin_state_on_backends.py
        "run_connectors",
        "stream",
        "trainable_module_ids",
    }
    elsewhere |= {*dir(OlderLearner), *dir(OlderUpdates), *dir(OlderSaving)}  # test_from_rllib.py
    members = {name for name in dir(Learner) if not name.startswith("_")}
    assert members - elsewhere <= set(USES), members - elsewhere - set(USES)
