"""Models of a framework that are no RLModules: given to a Learner as they are."""

import gymnasium as gym
import numpy as np
import pytest
from learning import TWO_ACTIONS, digest, ppo_batch, ppo_config, quick

from plugrad import DEFAULT_MODULE_ID, Columns, MultiRLModule
from plugrad.errors import ConfigError
from plugrad_ppo import PPOLearner

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID


def torch_model(inputs, outputs):
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(inputs, 8), torch.nn.Tanh(), torch.nn.Linear(8, outputs))


def tf2_model(inputs, outputs):
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(outputs)]
    return tf.keras.Sequential(layers)  # not built: it learns its inputs when it is adopted


def jax_model(inputs, outputs):
    from flax import nnx

    rngs = nnx.Rngs(0)
    return nnx.Sequential(nnx.Linear(inputs, 8, rngs=rngs), nnx.tanh, nnx.Linear(8, outputs, rngs=rngs))


MODELS = {"torch": torch_model, "tf2": tf2_model, "jax": jax_model}


def both_heads(backend, model):
    """A model with a policy and a value: the last column is the value."""
    if backend == "torch":
        import torch

        class Both(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = model

            def forward(self, obs):
                outputs = self.body(obs)
                return outputs[:, :2], outputs[:, 2:]

        return Both()
    if backend == "jax":
        from flax import nnx

        class Both(nnx.Module):
            def __init__(self):
                self.body = model

            def __call__(self, obs):
                outputs = self.body(obs)
                return outputs[:, :2], outputs[:, 2:]

        return Both()
    import tensorflow as tf

    class Both(tf.Module):
        def __init__(self):
            super().__init__()
            self.body = model

        def __call__(self, obs):
            outputs = self.body(obs)
            return outputs[:, :2], outputs[:, 2:]

    return Both()


def learner_of(backend, module, **training):
    learner = PPOLearner(config=quick(ppo_config(backend, lr=0.01, **training)), module=module)
    learner.build()
    return learner


def test_a_model_with_policy_and_value_trains_and_acts(backend):
    learner = learner_of(backend, both_heads(backend, MODELS[backend](3, 3)))
    assert sum(each.size for each in learner.get_weights()[P].values()) == 3 * 8 + 8 + 8 * 3 + 3
    batch = ppo_batch(32)
    losses = [learner.update(batch)[P]["total_loss"] for _ in range(40)]
    assert losses[-1] < losses[0] - 0.1
    columns = learner.compute_actions(batch[Columns.OBS])
    assert columns[Columns.ACTION_DIST_INPUTS].shape == (32, 2)
    assert columns[Columns.VF_PREDS].shape == (32,)


def test_models_by_id_and_one_that_returns_inputs_alone(backend):
    models = {"a": MODELS[backend](3, 2), "b": both_heads(backend, MODELS[backend](3, 3))}
    learner = learner_of(backend, models)
    assert list(learner.module) == ["a", "b"]
    outputs = learner.compute_actions(ppo_batch(4)[Columns.OBS], module_id="a")
    assert Columns.VF_PREDS not in outputs
    assert outputs[Columns.ACTION_DIST_INPUTS].shape == (4, 2)


def test_a_checkpoint_of_a_model_takes_the_model_from_the_caller(backend, tmp_path):
    learner = learner_of(backend, both_heads(backend, MODELS[backend](3, 3)))
    learner.update(ppo_batch())
    learner.save_to_path(tmp_path / "c")
    again = PPOLearner.from_checkpoint(tmp_path / "c", module=both_heads(backend, MODELS[backend](3, 3)))
    assert digest(again.get_state()) == digest(learner.get_state())


def test_what_is_given_stays_the_object_that_it_was(backend):
    model = both_heads(backend, MODELS[backend](3, 3))
    learner = learner_of(backend, model)
    assert learner.module[P].model is model
    own = MultiRLModule({"x": learner.module[P]})
    assert learner_of(backend, own).module is own


@pytest.mark.parametrize("given", ["a text", object(), 3])
def test_what_is_no_model_is_refused_by_name(backend, given):
    with pytest.raises(
        ConfigError, match=f"module 'default_policy': expected a .*found {type(given).__name__}"
    ):
        learner_of(backend, given)


def test_a_model_needs_spaces(backend):
    config = quick(ppo_config(backend)).environment(None, observation_space=None, action_space=None)
    with pytest.raises(ConfigError, match="has no observation_space"):
        PPOLearner(config=config, module=MODELS[backend](3, 3)).build()


def test_integer_observations_reach_the_model_as_they_are(backend):
    space = gym.spaces.Box(0, 9, (3,), np.int32)
    config = quick(ppo_config(backend)).environment(None, observation_space=space, action_space=TWO_ACTIONS)
    seen = []
    model = casting(backend, MODELS[backend](3, 2), seen)
    learner = PPOLearner(config=config, module=model)
    learner.build()
    learner.compute_actions(np.ones((2, 3), np.int32))
    assert "int32" in seen[-1]


def casting(backend, model, seen):
    if backend == "torch":
        import torch

        class Casting(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, obs):
                seen.append(str(obs.dtype))
                return self.model(obs.float())

        return Casting()
    if backend == "jax":
        from flax import nnx

        class Casting(nnx.Module):
            def __init__(self):
                self.model = model

            def __call__(self, obs):
                seen.append(str(obs.dtype))
                return self.model(obs.astype("float32"))

        return Casting()
    import tensorflow as tf

    class Casting(tf.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def __call__(self, obs):
            seen.append(str(obs.dtype))
            return self.model(tf.cast(obs, tf.float32))

    return Casting()
