"""Classes of models in `module_class`: called with what their signatures have of the spec."""

import random
import subprocess
import sys

import model_classes
import needs
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from learning import OBSERVATIONS, digest, ppo_batch, ppo_config, quick

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig, Columns, MultiRLModuleSpec, RLModuleSpec
from plugrad.errors import ConfigError
from plugrad_ppo import PPOLearner

P = DEFAULT_MODULE_ID


def class_of(backend, kind):
    return getattr(model_classes, f"{backend.capitalize()}{kind}")


def config_of(backend, module_class, **model_config):
    spec = RLModuleSpec(module_class=module_class, model_config=model_config)
    return quick(ppo_config(backend, lr=0.01)).rl_module(rl_module_spec=spec)


@pytest.mark.parametrize("named", [False, True])
def test_a_models_class_is_called_with_what_it_names(backend, named):
    cls = class_of(backend, "Net")
    learner = config_of(backend, f"model_classes:{cls.__name__}" if named else cls, width=5).build_learner()
    assert type(learner.module[P].model) is cls
    assert sum(each.size for each in learner.get_weights()[P].values()) == 3 * 5 + 5 + 5 * 2 + 2 + 5 + 1
    first = learner.update(ppo_batch(32))[P]["total_loss"]
    assert [learner.update(ppo_batch(32)) for _ in range(20)][-1][P]["total_loss"] < first
    assert learner.compute_actions(ppo_batch(4)[Columns.OBS])[Columns.VF_PREDS].shape == (4,)


def test_a_models_class_without_arguments_is_called_without(backend):
    learner = config_of(backend, class_of(backend, "Plain")).build_learner()
    assert learner.compute_actions(ppo_batch(4)[Columns.OBS])[Columns.ACTION_DIST_INPUTS].shape == (4, 2)


def test_a_function_may_make_the_model(backend):
    cls = class_of(backend, "Net")

    def make(observation_space, action_space):
        return cls(observation_space, action_space, {"width": 6})

    weights = config_of(backend, make).build_learner().get_weights()[P]
    assert 6 in {size for weight in weights.values() for size in weight.shape}


def test_a_class_that_needs_more_is_refused_by_name(backend):
    with pytest.raises(
        ConfigError, match=r"module 'default_policy': .*NeedsMore needs depth, which is not known"
    ):
        config_of(backend, class_of(backend, "NeedsMore")).build_learner()


@pytest.mark.parametrize("given", [3, "an instance", dict])
def test_what_is_no_class_of_a_model_is_refused(backend, given):
    given = class_of(backend, "Plain")() if given == "an instance" else given
    with pytest.raises(ConfigError, match=r"module 'default_policy': (module_class is a class|expected a)"):
        config_of(backend, given).build_learner()


def test_a_named_class_is_written_into_a_config_and_back(backend):
    name = f"model_classes:{class_of(backend, 'Net').__name__}"
    config = config_of(backend, class_of(backend, "Net"), width=5)
    path_text = config.to_toml()
    assert name in path_text
    again = type(config).from_toml(path_text)
    assert type(again.build_learner().module[P].model) is class_of(backend, "Net")


def test_modules_of_such_a_class_come_and_go(backend, tmp_path):
    cls = class_of(backend, "Net")
    learner = quick(ppo_config(backend)).build_learner()
    spec = RLModuleSpec(module_class=cls, model_config={"width": 5})
    learner.add_module(module_id="own", module_spec=spec)
    written = learner.config.rl_module_spec.rl_module_specs["own"]
    assert (written.module_class, dict(written.model_config)) == (cls, {"width": 5})
    learner.update({P: ppo_batch(), "own": ppo_batch()})
    learner.save_to_path(tmp_path)
    with pytest.raises(ConfigError, match="a checkpoint imports no code"):
        PPOLearner.from_checkpoint(tmp_path)
    again = PPOLearner.from_checkpoint(tmp_path, module_spec=learner.config.rl_module_spec)
    assert digest(again.get_state()) == digest(learner.get_state())


def test_a_group_builds_a_models_class(backend):
    config = config_of(backend, class_of(backend, "Net"))
    assert isinstance(config, AlgorithmConfig)
    group = config.build_learner_group()
    assert group.update(ppo_batch(32))
    group.shutdown()


def drawn(backend):
    """A user's class whose weights its framework draws."""
    if backend == "torch":
        return class_of(backend, "Net")
    if backend == "tf2":
        return class_of(backend, "Net")

    from flax import nnx

    class Drawn(nnx.Module):
        def __init__(self, observation_space, action_space, rngs):
            self.pi, self.vf = (
                nnx.Linear(observation_space.shape[0], n, rngs=rngs) for n in (int(action_space.n), 1)
            )

        def __call__(self, obs):
            return self.pi(obs), self.vf(obs)

    return Drawn


def in_setup(backend):
    """An RLModule, which draws in `setup`."""
    if backend == "torch":
        import torch

        from plugrad_torch import TorchRLModule

        class Torch(TorchRLModule):
            def setup(self):
                self.pi = torch.nn.Linear(3, 2)

        return Torch
    if backend == "tf2":
        import tensorflow as tf

        from plugrad_tf2 import Tf2RLModule

        class Tf2(Tf2RLModule):
            def setup(self):
                self.a = tf.Variable(tf.random.normal((3, 2)))
                self.b = tf.Variable(tf.random.get_global_generator().normal((3, 2)))
                self.c = tf.keras.layers.Dense(2)
                self.c.build((None, 3))

        return Tf2
    from flax import nnx

    from plugrad_jax import JaxRLModule

    class Jax(JaxRLModule):
        def setup(self):
            self.pi = nnx.Linear(3, 2, rngs=nnx.Rngs(np.random.randint(2**31)))

    return Jax


def next_draws(backend):
    """Of the generators of the process."""
    draws = [random.random(), np.random.random()]
    if backend == "torch":
        import torch

        draws.append(float(torch.rand(())))
    if backend == "tf2":
        import tensorflow as tf

        draws += [float(tf.random.uniform(())), float(tf.random.get_global_generator().uniform(()))]
    return draws


def seed_process(backend, seed):
    random.seed(seed)
    np.random.seed(seed)
    if backend == "torch":
        import torch

        torch.manual_seed(seed)
    if backend == "tf2":
        import tensorflow as tf

        tf.random.set_seed(seed)
        tf.random.set_global_generator(tf.random.Generator.from_seed(seed))


@pytest.mark.parametrize("make", [drawn, in_setup])
def test_weights_of_a_users_class_follow_the_seed_and_the_modules_id(backend, make):
    spec = RLModuleSpec(module_class=make(backend), observation_space=OBSERVATIONS, action_space=Discrete(2))

    def weights(seed, process_seed):
        seed_process(backend, process_seed)
        specs = MultiRLModuleSpec(rl_module_specs=dict.fromkeys("ab", spec))
        return ppo_config(backend, seed=seed).rl_module(rl_module_spec=specs).build_learner().get_weights()

    first, same, other = weights(0, 1), weights(0, 2), weights(5, 1)
    assert digest(first) == digest(same), "whatever the state of the process's generators"
    assert digest(first) != digest(other)
    assert digest(first["a"]) != digest(first["b"]), "each module has its own"


WEIGHTS_OF_A_PROCESS = """
import hashlib, sys
import gymnasium as gym, numpy as np, torch
from plugrad import RLModuleSpec
from plugrad_ppo import PPOConfig

class Net(torch.nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.policy, self.value = torch.nn.Linear(3, int(action_space.n)), torch.nn.Linear(3, 1)

    def forward(self, obs):
        return self.policy(obs), self.value(obs)

torch.manual_seed(int(sys.argv[1]))  # processes of a machine begin in other states
np.random.seed(int(sys.argv[1]))
spaces = gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2)
config = PPOConfig().framework("torch", compile="none").debugging(seed=int(sys.argv[2]))
config = config.environment(observation_space=spaces[0], action_space=spaces[1])
learner = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Net)).build_learner()
weights = learner.get_weights()["default_policy"]
print(hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest())
"""


def test_weights_of_a_users_class_follow_the_seed_in_each_process():
    needs.backend("torch")

    def weights(process_seed, seed):
        command = [sys.executable, "-c", WEIGHTS_OF_A_PROCESS, str(process_seed), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    first, same, other = weights(1, 0), weights(2, 0), weights(1, 5)
    assert first == same
    assert first != other


def test_generators_of_the_process_go_on_from_where_they_were(backend):
    seed_process(backend, 3)
    expected = next_draws(backend)
    seed_process(backend, 3)
    config_of(backend, in_setup(backend)).build_learner()
    assert next_draws(backend) == expected
