"""A module that draws its own actions of a Tuple space and returns them in parts is told its name and the column."""

import gymnasium as gym
import numpy as np
from case import BACKEND, OBSERVATIONS, refused, small

from plugrad import Columns, RLModuleSpec
from plugrad.errors import BatchError

SPACE = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(-2.0, 2.0, (1,), np.float32)])
if BACKEND == "torch":
    import torch

    from plugrad_torch import TorchRLModule

    class Draws(TorchRLModule):
        def setup(self):
            self.pi = torch.nn.Linear(3, 5)

        def _forward(self, batch, **kwargs):
            number = len(batch["obs"])
            parts = (torch.zeros(number, dtype=torch.int64), torch.zeros(number, 1))
            return {Columns.ACTION_DIST_INPUTS: self.pi(batch["obs"]), Columns.ACTIONS: parts}

elif BACKEND == "tf2":
    import tensorflow as tf

    from plugrad_tf2 import Tf2RLModule

    class Draws(Tf2RLModule):
        def setup(self):
            self.pi = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(5)])

        def _forward(self, batch, **kwargs):
            number = tf.shape(batch["obs"])[0]
            parts = (tf.zeros([number], tf.int64), tf.zeros([number, 1]))
            return {Columns.ACTION_DIST_INPUTS: self.pi(batch["obs"]), Columns.ACTIONS: parts}

else:
    import jax.numpy as jnp
    from flax import nnx

    from plugrad_jax import JaxRLModule

    class Draws(JaxRLModule):
        def setup(self):
            self.pi = nnx.Linear(3, 5, rngs=nnx.Rngs(0))

        def _forward(self, batch, **kwargs):
            number = len(batch["obs"])
            parts = (jnp.zeros(number, jnp.int32), jnp.zeros((number, 1)))
            return {Columns.ACTION_DIST_INPUTS: self.pi(batch["obs"]), Columns.ACTIONS: parts}


spec = RLModuleSpec(module_class=Draws, observation_space=OBSERVATIONS, action_space=SPACE)
learner = small(actions=SPACE).rl_module(rl_module_spec=spec).build_learner()
with refused(BatchError, "Draws", "'actions'", "rows [B, 2]"):
    learner.compute_actions(np.zeros((4, 3), np.float32))
