"""Capabilities with a condition: not on every device, not with every config; the reason is said wherever it matters."""

import numpy as np
import pytest

from plugrad.errors import ConfigError, PluginError
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.registry import use_plugin
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_config, tiny_learner

CONDITIONAL = """
from plugrad import hookimpl
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.testing.numpy_backend import *

def clips(ops, config):
    return config.grad_clip is not None or "without grad_clip"

@hookimpl
def backend_info():
    return BackendInfo("conditional", "1", capabilities={
        Capability.FLOAT64: True,
        Capability.XLA: False,
        Capability.COMPLETE_UPDATE: clips,
        Capability.FRAMEWORK_OPTIMIZERS: clips,
        Capability.ONNX: lambda ops, config: False,
        Capability.USER_MODULES: clips,
    })
"""


@pytest.fixture(scope="module")
def conditional(tmp_path_factory):
    path = tmp_path_factory.mktemp("conditional") / "conditional.py"
    path.write_text(CONDITIONAL)
    return use_plugin(str(path)).name


def test_a_learner_knows_what_its_backend_has_with_its_config(conditional):
    plain, clipping = tiny_learner(conditional), tiny_learner(conditional, grad_clip=1.0)
    for capability in (Capability.USER_MODULES, "complete_update"):
        assert not plain.supports(capability)
        assert clipping.supports(capability)
    assert plain.supports(Capability.FLOAT64)
    assert not plain.supports(Capability.XLA)
    assert not tiny_learner("numpy").supports(Capability.XLA)
    assert tiny_learner("numpy").supports("float64")


def test_the_reason_is_said(conditional):
    learner = tiny_learner(conditional)
    reasons = {
        Capability.FLOAT64: "",
        Capability.XLA: "backend 'conditional' does not declare 'xla'",
        Capability.USER_MODULES: "backend 'conditional' has no 'user_modules' here: without grad_clip",
        Capability.ONNX: "backend 'conditional' has no 'onnx' here: it does not say why",
    }
    found = {each: learner.backend_info.why_not(each, learner.ops, learner.config) for each in reasons}
    assert found == reasons


def test_conditions_declare(conditional):
    info = tiny_learner(conditional).backend_info
    assert info.capabilities == {*Capability} & {
        *("float64", "complete_update", "native_optimizers", "onnx", "user_modules")
    }
    assert {*info.conditions} == info.capabilities - {"float64"}


def test_a_model_is_refused_with_the_reason(conditional):
    learner = ActorCriticLearner(config=tiny_config(conditional), module=object())
    with pytest.raises(ConfigError, match=r"'default_policy' is a object: .* here: without grad_clip"):
        learner.build()
    learner = ActorCriticLearner(config=tiny_config(conditional, grad_clip=1.0), module=object())
    with pytest.raises(ConfigError, match="expected a NumpyRLModule"):  # the backend's own words
        learner.build()


def test_an_optimizer_of_the_framework_is_refused_with_the_reason(conditional):
    learner = tiny_learner(conditional)
    params = learner.get_parameters(learner.module["default_policy"])
    with pytest.raises(ConfigError, match=r"optimizer 'own': .* here: without grad_clip"):
        learner.register_optimizer(optimizer_name="own", optimizer=object(), params=params)


def test_a_whole_update_is_not_asked_for_and_the_update_says_why(conditional):
    learners = [tiny_learner(conditional, compile=mode) for mode in ("complete_update", "none")]
    for learner in learners:
        learner.update(tiny_batch())
    assert learners[0].update_mode == (
        "none: numpy, one step per minibatch; backend 'conditional' has no 'complete_update' here: without grad_clip"
    )
    assert learners[1].update_mode == "none: numpy, one step per minibatch"
    one, other = (learner.get_weights()["default_policy"] for learner in learners)
    for name, weight in one.items():
        np.testing.assert_array_equal(weight, other[name])


@pytest.mark.parametrize(("version", "wanted"), [(3, "plugrad"), (0, "backend 'mine'")])
def test_a_contract_of_another_time_is_refused(version, wanted):
    words = f"'mine' is written for version {version} of the contract.* 1 to 2: install a newer version of {wanted}"
    with pytest.raises(PluginError, match=words):
        BackendInfo("mine", "1", contract_version=version)
