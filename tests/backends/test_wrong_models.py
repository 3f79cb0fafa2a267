"""What users' models may get wrong: one error each, which names the class, what was expected and what was found."""

import gymnasium as gym
import model_classes
import needs
import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, digest, ppo_batch, ppo_config, quick

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, RLModuleSpec, load_policy
from plugrad.errors import (
    BatchError,
    ConfigError,
    LossError,
    MissingColumnError,
    NonFiniteError,
    OptimizerError,
)

P = DEFAULT_MODULE_ID
OBS = ppo_batch(16)[Columns.OBS]


def model_class(backend, change=lambda framework, inputs, values: (inputs, values), name="Net"):
    """A class of models of two heads, whose outputs go through `change(framework, inputs, values)`."""
    if backend == "torch":
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.heads = torch.nn.ModuleList([torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)])

            def forward(self, obs):
                return change(torch, *(head(obs) for head in self.heads))

    elif backend == "jax":
        import jax
        from flax import nnx

        class Net(nnx.Module):
            def __init__(self):
                rngs = nnx.Rngs(0)
                self.policy, self.value = nnx.Linear(3, 2, rngs=rngs), nnx.Linear(3, 1, rngs=rngs)

            def __call__(self, obs):
                return change(jax.numpy, self.policy(obs), self.value(obs))

    else:
        import tensorflow as tf

        class Net(tf.keras.Model):
            def __init__(self):
                super().__init__()
                self.heads = [tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)]

            def call(self, obs):
                return change(tf, *(head(obs) for head in self.heads))

    Net.__name__ = name
    return Net


def learner_of(backend, module_class, action_space=TWO_ACTIONS, **settings):
    config = quick(ppo_config(backend, **settings)).environment(
        observation_space=OBSERVATIONS, action_space=action_space
    )
    return config.rl_module(rl_module_spec=RLModuleSpec(module_class=module_class)).build_learner()


def calls(learner):
    """The three ways to a user's model."""
    policy = learner.get_policy()
    return (
        lambda: learner.update(ppo_batch(16)),
        lambda: learner.compute_actions(OBS),
        lambda: policy.predict(OBS),
    )


INPUTS = r"float32 \[B, 2\] with B = 16, the inputs of a Categorical for Discrete\(2\)"
VALUES = r"float32 \[B\] with B = 16, one value for each observation"
COLUMNS = r"inputs of the action distribution, \(inputs, values\), or \{column: tensor\}"
WRONG = {
    "too wide": (
        lambda f, inputs, values: (f.concat([inputs, inputs], axis=-1), values),
        rf"'action_dist_inputs' as float32 \[16, 4\]; expected {INPUTS}",
    ),
    "swapped": (
        lambda f, inputs, values: (values, inputs),
        rf"'action_dist_inputs' as float32 \[16, 1\]; expected {INPUTS}",
    ),
    "a time axis": (
        lambda f, inputs, values: (inputs[:, None], values),
        rf"'action_dist_inputs' as float32 \[16, 1, 2\]; expected {INPUTS}",
    ),
    "one row": (
        lambda f, inputs, values: (inputs[:1], values),
        rf"'action_dist_inputs' as float32 \[1, 2\]; expected {INPUTS}",
    ),
    "values of one row": (
        lambda f, inputs, values: (inputs, values[:1]),
        rf"'vf_preds' as float32 \[1\]; expected {VALUES}",
    ),
    "two values": (
        lambda f, inputs, values: (inputs, inputs),
        rf"'vf_preds' as float32 \[16, 2\]; expected {VALUES}",
    ),
    "integers": (
        lambda f, inputs, values: (f.ones_like(inputs, dtype=f.int64), values),
        rf"'action_dist_inputs' as int\d\d \[16, 2\]; expected {INPUTS}",
    ),
    "nothing": (lambda f, inputs, values: None, rf"returned None; expected {COLUMNS}"),
    "three": (
        lambda f, inputs, values: (inputs, values, inputs),
        rf"returned a tuple of 3; expected {COLUMNS}",
    ),
    "other columns": (
        lambda f, inputs, values: {"logits": inputs, "vf_preds": values},
        r"returned no 'action_dist_inputs', which is needed here; expected that column, found only: logits, vf_preds",
    ),
}


def test_a_class_in_place_of_a_model_is_refused_with_what_to_type(backend, tmp_path):
    net = model_class(backend)
    ppo_config(backend).build_learner().save_to_path(tmp_path)
    for open_ in (Learner.from_checkpoint, load_policy):
        with pytest.raises(
            ConfigError, match=r"expected an object, found the class .*Net: pass Net\(\.\.\.\)"
        ):
            open_(tmp_path, module=net)


@pytest.mark.cross_product
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_outputs_are_named_and_change_nothing(backend, wrong):
    change, words = WRONG[wrong]
    learner = learner_of(backend, model_class(backend, change))
    before = digest(learner.get_state())
    for call in calls(learner):
        with pytest.raises(BatchError, match=f"Net returned .*{words}|Net {words}"):
            call()
        learner.streams.clear()
    assert digest(learner.get_state()) == before


def test_an_expected_width_is_that_of_the_action_space(backend):
    space = gym.spaces.MultiDiscrete([3, 3])
    learner = learner_of(backend, model_class(backend), space)
    expected = r"expected float32 \[B, 6\] with B = 16, the inputs of a MultiCategorical for MultiDiscrete\(\[3 3\]\)"
    with pytest.raises(BatchError, match=expected):
        learner.compute_actions(OBS)


def test_numbers_that_are_none_are_refused_where_a_model_acts(backend):
    def spoilt(framework, inputs, values):
        return inputs * float("nan"), values

    update, *acting = calls(learner_of(backend, model_class(backend, spoilt)))
    for call in acting:
        with pytest.raises(
            NonFiniteError, match="Net returned 'action_dist_inputs' with NaN or infinity in 16 of 16"
        ):
            call()
    with pytest.raises(NonFiniteError, match="the update was undone"):
        update()


def test_a_choice_may_be_masked_out_by_minus_infinity(backend):
    def second_alone(framework, inputs, values):
        return framework.stack([inputs[:, 0] * 0 - float("inf"), inputs[:, 1]], -1), values

    learner = learner_of(backend, model_class(backend, second_alone))
    assert set(learner.compute_actions(OBS)[Columns.ACTIONS]) == {1}


@pytest.mark.parametrize("values", [None, "absent"])
def test_a_loss_that_misses_values_says_which_model_gave_none(backend, values):
    def inputs_alone(framework, inputs, _):
        return inputs if values == "absent" else (inputs, values)

    learner = learner_of(backend, model_class(backend, inputs_alone))
    assert Columns.VF_PREDS not in learner.compute_actions(OBS)
    words = r"Net returned no 'vf_preds'.* found only: action_dist_inputs; a plain model returns \(inputs, values\)"
    for call in (lambda: learner.update(ppo_batch(16)), lambda: learner.compute_values(OBS)):
        with pytest.raises(MissingColumnError, match=words):
            call()


def test_values_in_a_dict_may_have_one_column(backend):
    def named(framework, inputs, values):
        return {"action_dist_inputs": inputs, "vf_preds": values}

    learner = learner_of(backend, model_class(backend, named))
    learner.update(ppo_batch(16))
    assert learner.compute_actions(OBS)[Columns.VF_PREDS].shape == (16,)


def test_an_error_of_the_model_says_what_it_was_called_with(backend):
    def failing(framework, inputs, values):
        if len(inputs.shape) and inputs.shape[0] != 1:  # a Keras model is called with one row when it is made
            raise KeyError("mine")
        return inputs, values

    update, act, predict = calls(learner_of(backend, model_class(backend, failing)))
    for call in (update, act, predict):
        with pytest.raises(KeyError, match="mine") as caught:
            call()
        assert any("in Net, called with obs float32 [16, 3]" in each for each in caught.value.__notes__)


def test_a_forward_pass_without_gradients_is_an_error(backend):
    def stopped(framework, inputs, values):
        if backend == "jax":
            from jax.lax import stop_gradient as stop
        else:
            stop = getattr(framework, "stop_gradient", lambda x: x.detach())
        return stop(inputs), stop(values)

    learner = learner_of(backend, model_class(backend, stopped))
    before = digest(learner.get_state())
    with pytest.raises(LossError, match="no gradient reaches a parameter from the loss of 'default_policy'"):
        learner.update(ppo_batch(16))
    assert digest(learner.get_state()) == before


# --- parameters ---------------------------------------------------------------------------------------------------


def frozen_class(backend):
    return getattr(model_classes, f"{backend.capitalize()}Frozen")


def test_a_model_without_trained_parameters_is_refused_unless_it_is_not_to_be_trained(backend, tmp_path):
    with pytest.raises(
        ConfigError, match=r"module 'default_policy' \((Torch|Tf2|Jax)Frozen\) has no parameters to train"
    ):
        learner_of(backend, frozen_class(backend))
    config = quick(ppo_config(backend)).multi_agent(
        policies={"learns": RLModuleSpec(), "opponent": RLModuleSpec(module_class=frozen_class(backend))},
        policies_to_train=["learns"],
    )
    learner = config.build_learner()
    learner.update({"learns": ppo_batch(16), "opponent": ppo_batch(16)})
    learner.save_to_path(tmp_path)
    again = load_policy(tmp_path, module_id="opponent", module=frozen_class(backend)())
    np.testing.assert_array_equal(again.predict(OBS)[0], learner.get_policy("opponent").predict(OBS)[0])


def test_parameters_of_another_precision_are_refused_by_name(backend):
    def make():
        if backend == "torch":
            return model_class(backend)().double()
        if backend == "jax":  # which has no float64 where nobody switched it on
            from flax import nnx

            return nnx.Sequential(nnx.Linear(3, 2, param_dtype="bfloat16", rngs=nnx.Rngs(0)))
        import tensorflow as tf

        return tf.keras.Sequential([tf.keras.layers.Dense(2, dtype="float64")])

    with pytest.raises(
        OptimizerError,
        match=r"parameter 'default_policy/model\..*' is (float64|bfloat16): trained parameters",
    ):
        learner_of(backend, make)


@pytest.mark.parametrize("kind", ["of Keras", "of TensorFlow"])
def test_parameters_that_keras_would_constrain_after_a_step_are_refused_by_name(kind):
    """No optimizer here would, and the policy would be another one in silence."""
    needs.backend("tf2")
    import tensorflow as tf

    limit = tf.keras.constraints.MaxNorm(0.1)

    class Own(tf.Module):
        def __init__(self):
            super().__init__()
            self.weight = tf.Variable(tf.ones([3, 2]), constraint=limit)

        def __call__(self, obs):
            return obs @ self.weight

    def make():
        if kind == "of TensorFlow":
            return Own()
        return tf.keras.Sequential([tf.keras.layers.Dense(2, kernel_constraint=limit)])

    with pytest.raises(OptimizerError, match=r"parameter 'default_policy/model\..* has a constraint"):
        learner_of("tf2", make)


def test_layers_that_are_made_while_training_are_refused(backend):
    """Nobody would train them."""

    def late(framework, inputs, values):
        return inputs, values

    cls = model_class(backend, late)

    if backend == "torch":
        import torch

        class Late(cls):
            def forward(self, obs):
                if not hasattr(self, "late"):
                    self.late = torch.nn.Linear(3, 3)
                return super().forward(self.late(obs))
    elif backend == "jax":
        from flax import nnx

        class Late(cls):
            def __call__(self, obs):
                self.late = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
                return super().__call__(self.late(obs))
    else:
        import tensorflow as tf

        class Late(cls):
            def __init__(self):
                super().__init__()
                self.late = tf.keras.layers.Dense(3)

            def call(self, obs, training=False):
                return super().call(self.late(obs) if training else obs)

    learner = learner_of(backend, Late)
    for _ in range(2):
        words = (
            "parameters, which no optimizer trains: model.late"  # copies of its layers compute there
            if backend == "jax"
            else r"\(Late\) has parameters that it had not when the learner was built.*: default_policy/model\."
        )
        with pytest.raises(ConfigError, match=words):
            learner.update(ppo_batch(16))


# --- what differs between the frameworks --------------------------------------------------------------------------


def test_lazy_layers_of_torch_learn_their_widths(tmp_path):
    needs.backend("torch")
    learner = learner_of("torch", model_classes.TorchLazy)
    assert learner.get_weights()[P]["model.0.weight"].shape == (8, 3)
    learner.save_to_path(tmp_path)
    again = load_policy(tmp_path, module=model_classes.TorchLazy())
    np.testing.assert_array_equal(again.predict(OBS)[0], learner.get_policy().predict(OBS)[0])


@pytest.mark.parametrize(("space", "width"), [(gym.spaces.MultiBinary(5), 5), (gym.spaces.Discrete(3), 4)])
def test_lazy_layers_of_torch_take_observations_that_are_no_box(space, width):
    torch = needs.backend("torch")

    class Lazy(torch.nn.Sequential):
        def __init__(self):
            first = [torch.nn.Embedding(3, 4)] if space == gym.spaces.Discrete(3) else []
            super().__init__(*first, torch.nn.LazyLinear(2))

    config = quick(ppo_config("torch")).environment(observation_space=space, action_space=TWO_ACTIONS)
    learner = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Lazy)).build_learner()
    assert list(learner.get_weights()[P].values())[-1].shape == (2, width)


def test_a_torch_model_that_changes_observations_in_place_is_refused():
    needs.backend("torch")

    class InPlace(model_class("torch")):
        def forward(self, obs):
            obs *= 2
            return super().forward(obs)

    learner = learner_of("torch", InPlace)
    for call in calls(learner):
        with pytest.raises(BatchError, match="InPlace changed its observations in place"):
            call()


def test_a_keras_model_that_wants_to_be_told_the_mode_is_told():
    needs.backend("tf2")
    seen = []

    class Told(model_class("tf2")):
        def call(self, obs, training):
            seen.append(training)
            return super().call(obs)

    learner = learner_of("tf2", Told)
    learner.compute_actions(OBS)
    assert set(seen) == {False}
    learner.update(ppo_batch(16))
    assert set(seen) == {False, True}


def test_a_module_with_a_constructor_of_its_own_gets_what_that_names(backend):
    if backend == "torch":
        import torch

        from plugrad_torch import TorchRLModule as Base

        def layers():
            return torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
    elif backend == "jax":
        from flax import nnx

        from plugrad_jax import JaxRLModule as Base

        def layers():
            return nnx.Linear(3, 2, rngs=nnx.Rngs(0)), nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    else:
        import tensorflow as tf

        from plugrad_tf2 import Tf2RLModule as Base

        def layers():
            made = tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)
            for each in made:
                each.build((None, 3))
            return made

    class Own(Base):
        def __init__(self, observation_space, action_space):
            super().__init__(observation_space=observation_space, action_space=action_space)
            self.policy, self.value = layers()

        def _forward(self, batch, **kwargs):
            obs = batch[Columns.OBS]
            return {Columns.ACTION_DIST_INPUTS: self.policy(obs), Columns.VF_PREDS: self.value(obs)[:, 0]}

    learner = learner_of(backend, Own)
    learner.update(ppo_batch(16))
    assert learner.compute_actions(OBS)[Columns.VF_PREDS].shape == (16,)
