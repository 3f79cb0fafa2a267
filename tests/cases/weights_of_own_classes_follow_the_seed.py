"""Initial weights of a user's own class follow `debugging(seed=)`: equal in two learners, others with another seed."""

from case import BACKEND, CHOICES, OBSERVATIONS, P, check, equal, small

from plugrad import RLModuleSpec

if BACKEND == "torch":
    import torch

    class Network(torch.nn.Module):
        def __init__(self, observation_space, action_space):
            super().__init__()
            self.pi, self.vf = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)

        def forward(self, obs):
            return self.pi(obs), self.vf(obs)

elif BACKEND == "tf2":
    import tensorflow as tf

    class Network(tf.keras.Model):
        def __init__(self, observation_space, action_space):
            super().__init__()
            self.pi, self.vf = tf.keras.layers.Dense(3), tf.keras.layers.Dense(1)

        def call(self, obs):
            return self.pi(obs), self.vf(obs)

else:
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, observation_space, action_space, rngs):
            self.pi, self.vf = nnx.Linear(3, 3, rngs=rngs), nnx.Linear(3, 1, rngs=rngs)

        def __call__(self, obs):
            return self.pi(obs), self.vf(obs)


def weights(seed):
    spec = RLModuleSpec(module_class=Network, observation_space=OBSERVATIONS, action_space=CHOICES)
    return small(seed=seed).rl_module(rl_module_spec=spec).build_learner().get_weights()[P]


first, again, other = weights(0), weights(0), weights(1)
check(equal(first, again), "two learners of one seed have other weights")
check(not equal(first, other), "another seed gives the same weights")
