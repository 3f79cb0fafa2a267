"""Plain models of each framework with an actor and two critics learn by SAC and TD3 as the built-in networks do."""

import gymnasium as gym
import needs
import numpy as np
import pytest
from actor_critics import transitions
from learning import OBSERVATIONS

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, RLModuleSpec, load_policy
from plugrad.errors import BatchError, ConfigError
from plugrad_sac import SACConfig, TD3Config

P = DEFAULT_MODULE_ID
BOX, CHOICES = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(3)
KINDS = {"sac": (SACConfig, BOX, 4), "sac discrete": (SACConfig, CHOICES, 3), "td3": (TD3Config, BOX, 2)}


def linear_model(backend, outputs, values, inputs=5):
    """A class of a plain model: a linear actor, and two linear critics of `inputs` numbers."""
    if backend == "torch":
        import torch

        class Critic(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.LazyLinear(values)

            def forward(self, *inputs):
                return self.layer(torch.cat(inputs, -1))

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.pi = torch.nn.Linear(3, outputs)
                self.qf1, self.qf2 = Critic(), Critic()

    elif backend == "tf2":
        from tensorflow import keras

        class Critic(keras.Model):
            def __init__(self):
                super().__init__()
                self.layer = keras.layers.Dense(values)

            def call(self, obs, actions=None):
                return self.layer(obs if actions is None else keras.ops.concatenate([obs, actions], -1))

        class Net(keras.Model):
            def __init__(self):
                super().__init__()
                self.pi = keras.layers.Dense(outputs)
                self.qf1, self.qf2 = Critic(), Critic()

    else:
        from flax import nnx
        from jax import numpy as jnp

        class Critic(nnx.Module):
            def __init__(self, rngs):
                self.layer = nnx.Linear(inputs, values, rngs=rngs)

            def __call__(self, *parts):
                return self.layer(jnp.concatenate(parts, -1))

        class Net(nnx.Module):
            def __init__(self, rngs):
                self.pi = nnx.Linear(3, outputs, rngs=rngs)
                self.qf1, self.qf2 = Critic(rngs), Critic(rngs)

    return Net


def learner_of(kind, backend, model=None):
    config, space, _ = KINDS[kind]
    config = config().framework(backend, compile="none").debugging(seed=1)
    config = config.environment(observation_space=OBSERVATIONS, action_space=space)
    config = config.training(minibatch_size=None, shuffle_batch_per_epoch=False, lr=0.01, tau=0.5)
    spec = RLModuleSpec(module_class=model) if model else RLModuleSpec(model_config={"fcnet_hiddens": []})
    return config.rl_module(rl_module_spec=spec).build_learner()


def model_of(kind, backend):
    _, space, outputs = KINDS[kind]
    return linear_model(backend, outputs, *((3, 3) if space is CHOICES else (1, 5)))


def rows_of(kind):
    rows = transitions(kind)
    return rows if kind == "sac discrete" else {**rows, Columns.ACTIONS: np.clip(rows["actions"], -0.9, 0.9)}


def as_built_in(weights, names):
    """The weights of a plain model in the form of the built-in network's: critics stacked, [in, out]."""
    found = {}
    for name in names:
        part, _, last = name.partition(".")
        last = last.rpartition(".")[2]
        if name == "log_alpha":
            found[name] = weights[name]
            continue
        parts = ("pi",) if part == "pi" else ("qf1", "qf2")
        ours = [
            next(each for each in weights if each.startswith(p) and is_bias(each) == (last == "bias"))
            for p in parts
        ]
        arrays = [weights[each].T if each.endswith("weight") else weights[each] for each in ours]
        found[name] = arrays[0] if part == "pi" else np.stack(arrays)
    return found


def is_bias(name):
    return name.endswith("bias")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_model_learns_as_the_built_in_network_with_its_weights(kind, backend, tmp_path):
    model = model_of(kind, backend)
    plain, built_in = learner_of(kind, backend, model), learner_of(kind, backend)
    names = list(built_in.get_weights()[P])
    built_in.set_weights({P: as_built_in(plain.get_weights()[P], names)})
    targets = [each.targets[P] for each in (plain, built_in)]
    for each in targets:
        each.update(tau=1.0)
    assert set(plain.registered_optimizers) == set(built_in.registered_optimizers)
    before = built_in.get_weights()[P]
    for _ in range(2):
        found, expected = (each.update(rows_of(kind))[P] for each in (plain, built_in))
    for name in ("qf_loss", "policy_loss", "qf_mean"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name
    after = as_built_in(plain.get_weights()[P], names)
    for name, weight in built_in.get_weights()[P].items():
        np.testing.assert_allclose(after[name], weight, atol=1e-5, err_msg=name)
        assert np.abs(weight - before[name]).max() > 1e-4, name
    copied = {name: each for name, each in targets[1].get_state().items() if name in names}
    mine = as_built_in({**plain.get_weights()[P], **targets[0].get_state()}, copied)
    for name, weight in copied.items():
        np.testing.assert_allclose(mine[name], weight, atol=1e-5, err_msg=name)
    acting = [each.get_policy().predict(rows_of(kind)["obs"])[0] for each in (plain, built_in)]
    np.testing.assert_allclose(*acting, atol=1e-4)


def test_an_actor_trains_in_an_environment_and_is_deployed(backend, tmp_path):
    config = TD3Config().framework(backend, compile="none").environment("Pendulum-v1").debugging(seed=0)
    config = config.training(train_batch_size=8, minibatch_size=8, random_steps=8)
    config = config.training(num_steps_sampled_before_learning_starts=8, lr=0.01)
    config = config.reporting(min_sample_timesteps_per_iteration=10)
    Net = linear_model(backend, 1, 1, inputs=4)
    algorithm = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Net)).build_algo()
    before = algorithm.learner_group.get_weights()[P]
    for _ in range(2):
        algorithm.train()
    after = algorithm.learner_group.get_weights()[P]
    assert all(np.abs(after[name] - before[name]).max() > 0 for name in before)
    policy, obs = algorithm.get_policy(), np.float32([[0.5, 0.1, -2.0], [-1.0, 0.0, 1.0]])
    kernel, bias = (
        next(each for name, each in after.items() if name.startswith("pi") and is_bias(name) == b)
        for b in (False, True)
    )
    kernel = kernel.T if backend == "torch" else kernel
    expected = 2.0 * np.tanh(obs @ kernel + bias)
    np.testing.assert_allclose(policy.predict(obs)[0], expected, atol=1e-5)
    algorithm.stop()
    if backend == "jax":
        with pytest.raises(ConfigError, match="ONNX"):
            policy.export_onnx(tmp_path / "actor.onnx")
        return
    for extra in ("onnx", "onnxscript" if backend == "torch" else "tf2onnx"):
        needs.extra(extra)
    policy.export_onnx(tmp_path / "actor.onnx")
    from onnxruntime import InferenceSession

    session = InferenceSession(tmp_path / "actor.onnx")
    found = session.run(None, {session.get_inputs()[0].name: obs})[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_saved_actor_takes_its_model_from_the_caller(backend, tmp_path):
    config = learner_of("sac", backend).config
    Net = model_of("sac", backend)
    make = (lambda: Net(__import__("flax").nnx.Rngs(0))) if backend == "jax" else Net
    learner = Learner(config=config, module=make())
    learner.build()
    learner.save_to_path(tmp_path / "saved")
    policy, obs = load_policy(tmp_path / "saved", module=make()), rows_of("sac")["obs"]
    np.testing.assert_allclose(policy.predict(obs)[0], learner.get_policy().predict(obs)[0], atol=1e-6)


def test_a_model_without_a_part_or_with_a_wrong_one_is_refused(backend):
    with pytest.raises(
        BatchError, match=r"the part 'pi' of .* returned float32 \[1, 3\]; expected float32 \[B, 4\]"
    ):
        learner_of("sac", backend, linear_model(backend, 3, 1))
    with pytest.raises(
        BatchError, match=r"the part 'qf1' of .* returned float32 \[1, 2\]; expected float32 \[B\]"
    ):
        learner_of("sac", backend, linear_model(backend, 4, 2))


def test_a_model_without_critics_is_refused_with_what_is_missing(backend):
    make = {"torch": "torch.nn:Identity", "tf2": "keras.layers:Identity", "jax": "flax.nnx:Module"}[backend]
    with pytest.raises(
        ConfigError, match=r"SACConfig needs a model with the parts pi, qf1, qf2, and \w+ has no pi, qf1, qf2"
    ):
        learner_of("sac", backend, make)
