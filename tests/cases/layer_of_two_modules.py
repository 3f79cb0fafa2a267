"""Two modules share a layer, and one optimizer gets the parameters of both: the layer moves once, by both gradients."""

import gymnasium as gym
import numpy as np
from case import BACKEND, OBSERVATIONS, check, ppo_rows, small

from plugrad import MultiRLModuleSpec, RLModuleSpec
from plugrad.optimizers import make_optimizer
from plugrad_ppo import PPOLearner

if BACKEND == "torch":
    import torch

    ENCODER = torch.nn.Linear(3, 6)

    class Network(torch.nn.Module):
        def __init__(self, observation_space, action_space):
            super().__init__()
            self.encoder, self.pi, self.vf = ENCODER, torch.nn.Linear(6, 2), torch.nn.Linear(6, 1)

        def forward(self, obs):
            hidden = torch.tanh(self.encoder(obs))
            return self.pi(hidden), self.vf(hidden)

elif BACKEND == "tf2":
    import tensorflow as tf

    ENCODER = tf.keras.layers.Dense(6, "tanh", name="encoder")

    class Network(tf.keras.Model):
        def __init__(self, observation_space, action_space):
            super().__init__()
            self.encoder, self.pi, self.vf = ENCODER, tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)

        def call(self, obs):
            hidden = self.encoder(obs)
            return self.pi(hidden), self.vf(hidden)

else:
    import jax.numpy as jnp
    from flax import nnx

    RNGS = nnx.Rngs(0)
    ENCODER = nnx.Linear(3, 6, rngs=RNGS)

    class Network(nnx.Module):
        def __init__(self, observation_space, action_space):
            self.encoder = ENCODER
            self.pi, self.vf = nnx.Linear(6, 2, rngs=RNGS), nnx.Linear(6, 1, rngs=RNGS)

        def __call__(self, obs):
            hidden = jnp.tanh(self.encoder(obs))
            return self.pi(hidden), self.vf(hidden)


class OneOptimizer(PPOLearner):
    def configure_optimizers(self):
        params = [param for _, module in self.module.items() for param in self.get_parameters(module)]
        self.register_optimizer(
            optimizer=make_optimizer(self.config.optimizer), params=params, lr_or_lr_schedule=self.config.lr
        )


spec = RLModuleSpec(module_class=Network, observation_space=OBSERVATIONS, action_space=gym.spaces.Discrete(2))
config = small(lr=0.1, optimizer={"type": "sgd"}, grad_clip=None).learners(learner_class=OneOptimizer)
config = config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"a": spec, "b": spec}))
learner = config.build_learner()
rows = {each: ppo_rows(learner, module_id=each, seed=seed) for seed, each in enumerate("ab")}
start = learner.get_weights()


def moved(*modules):
    """How far the kernel that both have moves by the rows of these, as each of the two modules has it."""
    learner.set_weights(start)
    learner.update({each: rows[each] for each in modules})
    weights = learner.get_weights()
    return [
        next(
            weights[each][name] - start[each][name] for name in weights[each] if start[each][name].size == 18
        )
        for each in "ab"
    ]


of_both = moved("a", "b")
check(of_both[0].size and np.array_equal(*of_both), "the two modules have other numbers of one layer")
alone = moved("a")[0] + moved("b")[0]
apart = float(np.abs(of_both[0] - alone).max())
check(apart < 1e-6, f"the layer moved {apart} away from the sum of what each module's rows move it by")
check(np.abs(alone).max() > 1e-4, "the layer did not move")
