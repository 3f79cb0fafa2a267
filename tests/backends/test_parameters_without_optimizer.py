"""A trainable parameter that no optimizer steps stays at its initial value: an error, unless it is frozen by intent."""

import gymnasium as gym
import numpy as np
import pytest
from actor_critics import tiny
from learning import OBSERVATIONS, ValueLearner, ppo_batch, ppo_config, value_config

from plugrad import DEFAULT_MODULE_ID, RLModuleSpec
from plugrad.errors import ConfigError
from plugrad.optimizers import SGD, Adam
from plugrad_sac import SACConfig

P = DEFAULT_MODULE_ID


def with_layers(backend, *names, frozen=()):
    """A class of a user's RLModule with a linear layer of each name, and a temperature."""
    if backend == "torch":
        import torch

        from plugrad_torch import TorchRLModule

        class Torch(TorchRLModule):
            def setup(self):
                for name in names:
                    setattr(self, name, torch.nn.Linear(3, 2).requires_grad_(name not in frozen))
                self.log_alpha = torch.nn.Parameter(torch.zeros(()))

        return Torch
    if backend == "tf2":
        import tensorflow as tf

        from plugrad_tf2 import Tf2RLModule

        class Tf2(Tf2RLModule):
            def setup(self):
                for name in names:
                    layer = tf.keras.layers.Dense(2, trainable=name not in frozen)
                    layer.build((None, 3))
                    setattr(self, name, layer)
                self.log_alpha = tf.Variable(0.0)

        return Tf2
    import jax.numpy as jnp
    from flax import nnx

    from plugrad_jax import JaxRLModule

    class Jax(JaxRLModule):
        def setup(self):
            for name in names:
                layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
                if name in frozen:
                    layer.kernel, layer.bias = nnx.Variable(layer.kernel[...]), nnx.Variable(layer.bias[...])
                setattr(self, name, layer)
            self.log_alpha = nnx.Param(jnp.zeros(()))

    return Jax


def build(backend, module_class, **settings):
    space = gym.spaces.Box(-1.0, 1.0, (1,))
    config = SACConfig().environment(observation_space=OBSERVATIONS, action_space=space).training(**settings)
    spec = RLModuleSpec(module_class=module_class)
    return config.framework(backend, compile="none").rl_module(rl_module_spec=spec).build_learner()


def steps(learner, optimizer):
    """The layers that an optimizer steps."""
    refs = learner.registered_optimizers[f"{P}_{optimizer}"].refs
    return {ref.removeprefix(f"{P}/").split(".")[0] for ref in refs}


def test_a_shared_trunk_of_no_optimizer_is_an_error_that_says_what_to_write(backend):
    with pytest.raises(ConfigError, match=r"no optimizer steps.*'trunk\.") as caught:
        build(backend, with_layers(backend, "trunk", "pi", "qf"))
    assert all(name.startswith("trunk.") for name in caught.value.facts["found"])
    assert "'critic' steps qf." in str(caught.value)
    assert f"learner.freeze_parameters('{P}', ['trunk." in str(caught.value)


def test_a_trunk_that_its_framework_freezes_is_meant_so(backend):
    learner = build(backend, with_layers(backend, "trunk", "pi", "qf", frozen={"trunk"}))
    assert any(name.startswith("trunk.") for name in learner.get_weights()[P])
    assert steps(learner, "actor") == {"pi"}


def test_names_match_by_whole_words(backend):
    learner = build(
        backend, with_layers(backend, "pixels", "pi", "pi_encoder", "qf1", "qf2", frozen={"pixels"})
    )
    assert steps(learner, "actor") == {"pi", "pi_encoder"}
    assert steps(learner, "critic") == {"qf1", "qf2"}
    with pytest.raises(ConfigError, match=r"no optimizer steps.*'pixels\."):
        build(backend, with_layers(backend, "pixels", "pi", "qf"))


def test_a_constant_temperature_needs_no_optimizer(backend):
    assert len(tiny("sac", backend, target_entropy=None).build_learner().registered_optimizers) == 2


# --- what is the same for all backends: the numpy one ---


class OnlyValues(ValueLearner):
    """Steps `vf.*`; `frozen` are frozen."""

    frozen = ()

    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        own = [param for param in params if "/vf" in self.get_param_ref(param)]
        self.register_optimizer(module_id=module_id, optimizer=SGD(), params=own, lr_or_lr_schedule=0.1)
        if self.frozen:
            self.freeze_parameters(module_id, self.frozen)


def only_values(*frozen):
    return value_config(learner_class=type("OnlyValues", (OnlyValues,), {"frozen": frozen}))


def test_parameters_are_frozen_by_layer_or_by_name():
    for frozen in (["pi"], ["pi.0", "pi.out.weight", "pi.out.bias"]):
        assert only_values(*frozen).build_learner().frozen_parameters[P] == {
            "pi.0.weight",
            "pi.0.bias",
            "pi.out.weight",
            "pi.out.bias",
        }
    for frozen in ([], ["pi.0"]):
        with pytest.raises(ConfigError, match=r"no optimizer steps.*'pi\.out\.weight'"):
            only_values(*frozen).build_learner()


def test_a_misspelled_frozen_layer_is_an_error():
    with pytest.raises(
        ConfigError, match=r"no trainable parameter or layer 'pi\.out\.wieght'.*pi\.out\.weight"
    ):
        only_values("pi.out.wieght").build_learner()
    with pytest.raises(ConfigError, match=r"type \['pi'\]"):
        only_values("pi").build_learner().freeze_parameters(P, "pi")


def test_modules_that_nobody_trains_may_have_no_optimizer():
    config = only_values().multi_agent(policies=[P], policies_to_train=[])
    assert config.build_learner().frozen_parameters == {}


def test_an_added_module_is_checked_and_the_learner_stays_as_it_was():
    learner = only_values("pi").build_learner()
    learner.frozen_parameters_before = dict(learner.frozen_parameters)
    type(learner).frozen = ()
    with pytest.raises(ConfigError, match=r"module 'b'.*no optimizer steps"):
        learner.add_module(
            module_id="b",
            module_spec=RLModuleSpec(observation_space=OBSERVATIONS, action_space=gym.spaces.Discrete(2)),
        )
    assert list(learner.module) == [P]
    assert learner.frozen_parameters == learner.frozen_parameters_before


def test_a_learner_without_optimizers_says_so_at_its_first_update():
    class Bare(ValueLearner):
        def configure_optimizers(self):
            pass

    learner = ppo_config().learners(learner_class=Bare).build_learner()
    before = learner.get_weights()[P]
    with pytest.raises(ConfigError, match=r"no optimizer steps.*Its optimizers: none"):
        learner.update(ppo_batch())
    for name, weight in learner.get_weights()[P].items():
        np.testing.assert_array_equal(weight, before[name])
    learner.register_optimizer(
        module_id=P, optimizer=SGD(), params=learner.get_parameters(learner.module[P]), lr_or_lr_schedule=0.1
    )
    learner.update(ppo_batch())


class Twice(ValueLearner):
    """Gives some parameters twice, as those of two modules that share a layer."""

    more = 2

    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        params = [*params, *params[: self.more]]
        self.register_optimizer(module_id=module_id, optimizer=Adam(), params=params, lr_or_lr_schedule=0.1)


class Once(Twice):
    more = 0


def test_a_parameter_that_is_listed_twice_is_stepped_once(backend):
    found = []
    for learner_class in (Once, Twice):
        config = value_config(backend, learner_class=learner_class, grad_clip=0.1)
        learner = config.framework(backend, compile="none").build_learner()
        learner.update(ppo_batch())
        learner.update(ppo_batch(seed=1))
        found.append(learner.get_weights()[P])
    for name, weight in found[0].items():
        np.testing.assert_array_equal(found[1][name], weight)
