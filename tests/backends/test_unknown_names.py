"""A name that nothing answers to is an error or a warning; what was meant for it is never dropped in silence."""

import logging

import needs
import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, digest, ppo_batch, ppo_config, weights, with_modules

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Learner, hookimpl
from plugrad.errors import (
    BatchError,
    ConfigError,
    LossError,
    OptimizerError,
    UnknownModuleError,
    UnknownParameterError,
)

P = DEFAULT_MODULE_ID


def renamed(gradients):
    return {name.replace("weight", "wieght"): gradient for name, gradient in gradients.items()}


class Computed(Learner):
    def compute_gradients(self, loss_per_module, **kwargs):
        return renamed(super().compute_gradients(loss_per_module, **kwargs))


class Postprocessed(Learner):
    def postprocess_gradients(self, gradients_dict):
        return renamed(super().postprocess_gradients(gradients_dict))


class PostprocessedForModule(Learner):
    def postprocess_gradients_for_module(self, **given):
        return renamed(super().postprocess_gradients_for_module(**given))


class GivenToSuper(Learner):
    def postprocess_gradients_for_module(self, *, module_gradients_dict, **given):
        given["module_gradients_dict"] = renamed(module_gradients_dict)
        return super().postprocess_gradients_for_module(**given)


class Applied(Learner):
    def apply_gradients(self, gradients_dict):
        super().apply_gradients(renamed(gradients_dict))


def built(backend, cls=Learner, plugins=(), **training):
    learner = cls(config=ppo_config(backend, **training), plugins=plugins)
    learner.build()
    return learner


@pytest.mark.parametrize(
    ("cls", "where"),
    [
        (Computed, "compute_gradients"),
        (Postprocessed, "postprocess_gradients"),
        (PostprocessedForModule, "postprocess_gradients_for_module of module 'default_policy'"),
        (GivenToSuper, "postprocess_gradients_for_module of module 'default_policy'"),
        (Applied, "apply_gradients"),
    ],
)
def test_gradients_under_other_names_are_an_error_and_change_nothing(backend, cls, where):
    learner = built(backend, cls)
    before = digest(learner.get_state())
    with pytest.raises(UnknownParameterError) as error:
        learner.update(ppo_batch(16))
    message = str(error.value)
    assert message.startswith(f"{where}: gradients of 'default_policy/pi.0.wieght'"), message
    assert "Did you mean 'default_policy/pi.0.weight'?" in message
    assert digest(learner.get_state()) == before


def test_gradients_by_parameter_instead_of_name_are_an_error():
    torch = needs.backend("torch")
    learner = built("torch")
    parameter = learner.get_parameters(learner.module[P])[0]
    with pytest.raises(
        KeyError, match=r"gradients of 'Parameter', which no optimizer steps: .*get_param_ref"
    ):
        learner.apply_gradients({parameter: torch.zeros_like(parameter)})


class Transposes:
    @hookimpl(wrapper=True)
    def postprocess_gradients(self, learner, gradients_dict):
        gradients = yield
        name = f"{P}/pi.0.weight"
        return {**gradients, name: learner.ops.reshape(gradients[name], (4, 3))}


def test_a_gradient_of_another_shape_is_an_error(backend):
    learner = built(backend, plugins=[Transposes()])
    with pytest.raises(
        OptimizerError, match=r"'default_policy/pi.0.weight' has shape \[3, 4\]; found \[4, 3\]"
    ):
        learner.update(ppo_batch(16))


class Freezes:
    """Leaves one parameter out, and all of another module's."""

    @hookimpl(wrapper=True)
    def postprocess_gradients(self, gradients_dict):
        gradients = yield
        return {name: each for name, each in gradients.items() if name.startswith("a/") and "out" not in name}


def test_gradients_that_are_left_out_leave_their_parameters_as_they_are(backend):
    learner = Learner(config=with_modules(ppo_config(backend), "a", "b"), plugins=[Freezes()])
    learner.build()
    before = learner.get_weights()
    learner.update({"a": ppo_batch(16), "b": ppo_batch(16)})
    for module_id, found in learner.get_weights().items():
        for name, values in found.items():
            is_frozen = module_id == "b" or "out" in name
            assert np.array_equal(values, before[module_id][name]) == is_frozen, name


def losses_of(change):
    class Changed(Learner):
        def compute_losses(self, *, fwd_out, batch):
            return change(super().compute_losses(fwd_out=fwd_out, batch=batch))

    return Changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda losses: {"default_polciy": losses[P]}, "'default_polciy', which is no module of this batch"),
        (lambda losses: {}, "expected {module_id: scalar loss}, found {}"),
        (lambda losses: None, "expected {module_id: scalar loss}, found None"),
    ],
)
def test_losses_of_no_module_are_an_error(backend, change, message):
    with pytest.raises(LossError, match=f"compute_losses: .*{message}"):
        built(backend, losses_of(change)).update(ppo_batch(16))


@pytest.mark.parametrize("given", [None, 1.0, {"loss": 1.0}])
def test_a_loss_that_is_no_tensor_is_an_error_that_names_the_module(backend, given):
    class Forgetful(Learner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            return given

    learner = built(backend, Forgetful)
    before = digest(learner.get_state())
    with pytest.raises(LossError, match=f"loss of module '{P}' is .*; it must be a scalar tensor") as caught:
        learner.update(ppo_batch(16))
    assert caught.value.facts["module_id"] == P
    assert digest(learner.get_state()) == before


def test_a_joint_loss_may_stand_under_one_module_or_all():
    def update(change):
        config = with_modules(ppo_config(), "a", "b").learners(learner_class=losses_of(change))
        learner = config.build_learner()
        learner.update({"a": ppo_batch(16), "b": ppo_batch(16, seed=1)})
        return np.concatenate([weights(learner, "a"), weights(learner, "b")])

    apart = update(dict)
    for key in ("a", ALL_MODULES):
        joint = update(lambda losses, key=key: {key: losses["a"] + losses["b"]})
        np.testing.assert_allclose(joint, apart, rtol=0, atol=1e-6)


def test_a_metric_of_no_module_is_an_error():
    with pytest.raises(UnknownModuleError, match="no module 'nope'; there are: default_policy"):
        built("numpy").register_metrics("nope", {"loss": 1.0})


def test_timesteps_without_the_one_that_schedules_read_are_an_error():
    learner = built("numpy")
    before = digest(learner.get_state())
    with pytest.raises(BatchError, match="read 'num_env_steps_sampled_lifetime', found only 'num_env_step'"):
        learner.update(ppo_batch(8), timesteps={"num_env_step": 8})
    assert digest(learner.get_state()) == before
    learner.update(ppo_batch(8), timesteps={"num_env_steps_sampled_lifetime": 8, "my_own": 1})


def test_spaces_of_a_module_that_the_config_does_not_name_are_an_error():
    spaces = dict.fromkeys(("a", "b", "c"), (OBSERVATIONS, TWO_ACTIONS))
    with pytest.raises(ConfigError, match="spaces of 'c', which is no module of the config's: a, b"):
        with_modules(ppo_config(), "a", "b").build_learner(spaces=spaces)


def test_settings_of_a_module_that_is_not_there_yet_are_said_in_the_log(caplog):
    config = with_modules(ppo_config(), "policy_a", "b").multi_agent(policies_to_train=["policy_a", "late"])
    config = config.rl_module(algorithm_config_overrides_per_module={"polcy_a": {"lr": 0.5}})
    with caplog.at_level(logging.WARNING, "plugrad"):
        config.build_learner()
    assert "algorithm_config_overrides_per_module names 'polcy_a', which is no module" in caplog.text
    assert "Did you mean 'policy_a'?" in caplog.text
    assert "policies_to_train names 'late', which is no module of this learner (policy_a, b)" in caplog.text
