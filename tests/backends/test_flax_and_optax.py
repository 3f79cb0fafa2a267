"""What only users of JAX can do or get wrong: models of flax, optimizers of optax."""

import needs
import numpy as np
import pytest
from learning import ValueLearner, ppo_batch, ppo_config, quick, value_config

from plugrad import DEFAULT_MODULE_ID
from plugrad.errors import ConfigError, OptimizerError
from plugrad_ppo import PPOLearner

P = DEFAULT_MODULE_ID


@pytest.fixture(autouse=True)
def flax():
    needs.backend("jax")
    needs.extra("optax")
    return needs.extra("flax")


def learner_of(model):
    learner = PPOLearner(
        config=quick(ppo_config("jax", lr=0.01)).framework("jax", compile="auto"), module=model
    )
    learner.build()
    return learner


def test_a_model_of_linen_is_refused_with_what_to_type_which_works():
    import jax.numpy as jnp
    from flax import linen, nnx

    class Net(linen.Module):
        @linen.compact
        def __call__(self, obs):
            return linen.Dense(2)(obs), linen.Dense(1)(obs)

    with pytest.raises(
        ConfigError, match=r"found Net of flax\.linen: type flax\.nnx\.bridge\.ToNNX\(module, rngs="
    ):
        learner_of(Net())
    learner = learner_of(nnx.bridge.ToNNX(Net(), rngs=nnx.Rngs(0)).lazy_init(jnp.zeros((1, 3))))
    first = learner.update(ppo_batch(16))[P]["total_loss"]
    assert [learner.update(ppo_batch(16)) for _ in range(10)][-1][P]["total_loss"] < first


def test_the_users_object_holds_what_was_trained_and_what_it_is_given_counts():
    import jax.numpy as jnp
    from statistics_models import normed

    model = normed("jax")
    learner = learner_of(model)
    learner.update(ppo_batch(16))
    weights = learner.get_weights()[P]
    for name, own in {"head.kernel": model.head.kernel, "norm.mean": model.norm.mean}.items():
        np.testing.assert_array_equal(own[...], weights[f"model.{name}"])
    model.head.kernel[...] = jnp.zeros((8, 3))
    model.norm.mean[...] = jnp.ones(8)
    weights = learner.get_weights()[P]
    assert not weights["model.head.kernel"].any()
    assert (weights["model.norm.mean"] == 1).all()
    learner.update(ppo_batch(16))
    assert np.abs(learner.get_weights()[P]["model.head.kernel"]).max() < 0.05, "it was trained from there"


class Bare(ValueLearner):
    def configure_optimizers(self):
        pass


def bare():
    learner = value_config("jax", learner_class=Bare).build_learner()
    return learner, learner.get_parameters(learner.module[P])


def test_an_optimizer_whose_rate_cannot_be_set_is_refused_with_what_to_type():
    import optax

    learner, params = bare()
    scheduled = optax.inject_hyperparams(optax.sgd)(learning_rate=optax.cosine_decay_schedule(0.1, 10))
    valued = optax.chain(
        optax.inject_hyperparams(optax.sgd)(learning_rate=0.1), optax.contrib.reduce_on_plateau()
    )
    for optimizer, said in (
        (optax.sgd(0.1), r"type optax\.inject_hyperparams\(optax\.adam\)\(learning_rate=0\.001\)"),
        (scheduled, r"lr_or_lr_schedule=\[\[0, value\]"),
        (valued, "needs more than gradients"),
    ):
        with pytest.raises(OptimizerError, match=said):
            learner.register_optimizer(module_id=P, optimizer=optimizer, params=params)
    assert learner.get_optimizers_for_module() == []


def test_steps_are_those_of_optax_by_hand_with_parameters_by_name():
    """A decay of matrices alone, which needs each parameter's shape."""
    import jax
    import optax

    def make(lr):
        decay = optax.add_decayed_weights(0.1, mask=lambda tree: jax.tree.map(lambda x: x.ndim == 2, tree))
        return optax.chain(decay, optax.inject_hyperparams(optax.adam)(learning_rate=lr))

    learner, params = bare()
    learner.register_optimizer(module_id=P, optimizer=make(0.5), params=params)
    learner._set_optimizer_lr(learner.get_optimizer(), 0.1)
    named = {f"{P}/{name}": each for name, each in learner.get_weights()[P].items()}
    optimizer, rng = make(0.1), np.random.default_rng(0)
    state = optimizer.init(named)
    for _ in range(3):
        gradients = {ref: rng.normal(size=each.shape).astype(np.float32) for ref, each in named.items()}
        learner.apply_gradients(learner._convert_batch_type(gradients))
        changes, state = optimizer.update(gradients, state, named)
        named = optax.apply_updates(named, changes)
    for name, found in learner.get_weights()[P].items():
        np.testing.assert_allclose(found, named[f"{P}/{name}"], rtol=0, atol=1e-6, err_msg=name)


class Noisy(ValueLearner):
    """Its optimizer keeps a typed key of random numbers."""

    def configure_optimizers_for_module(self, module_id, config=None):
        import jax
        import optax

        descent = optax.inject_hyperparams(optax.sgd)(learning_rate=0.1)
        noise = optax.add_noise(0.1, 0.5, jax.random.key(1))
        params = self.get_parameters(self.module[module_id])
        self.register_optimizer(module_id=module_id, optimizer=optax.chain(noise, descent), params=params)


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_random_keys_in_the_state_of_an_optimizer_are_saved_and_go_on(mode):
    batch = {"obs": np.ones((4, 3), np.float32), "value_targets": np.ones(4, np.float32)}
    config = value_config("jax", learner_class=Noisy).framework("jax", compile=mode)
    straight, other, first = (config.build_learner() for _ in range(3))
    straight.update(batch)
    other.set_state(straight.get_state())
    for learner in (straight, other, first):
        learner.update(batch)
    weights = [learner.get_weights()[P] for learner in (straight, other, first)]
    for name, weight in weights[0].items():
        np.testing.assert_array_equal(weight, weights[1][name])
    assert any(not np.array_equal(weight, weights[2][name]) for name, weight in weights[0].items())
    saved = straight.get_state(["optimizer"])
    assert "rng_key" in str(saved)
