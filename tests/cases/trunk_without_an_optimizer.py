"""SAC with a network whose shared trunk no optimizer steps: an error at build that names it, not random numbers."""

import gymnasium as gym
import numpy as np
from case import BACKEND, OBSERVATIONS, refused

from plugrad import RLModuleSpec
from plugrad.errors import ConfigError
from plugrad_sac import SACConfig

PARTS = ("trunk", "pi", "qf")

if BACKEND == "torch":
    import torch

    from plugrad_torch import TorchRLModule

    class Network(TorchRLModule):
        def setup(self):
            for part in PARTS:
                setattr(self, part, torch.nn.Linear(3, 4))
            self.log_alpha = torch.nn.Parameter(torch.zeros(()))

elif BACKEND == "tf2":
    import tensorflow as tf

    from plugrad_tf2 import Tf2RLModule

    class Network(Tf2RLModule):
        def setup(self):
            for part in PARTS:
                dense = tf.keras.layers.Dense(4)
                dense.build((None, 3))
                setattr(self, part, dense)
            self.log_alpha = tf.Variable(0.0)

else:
    import jax.numpy as jnp
    from flax import nnx

    from plugrad_jax import JaxRLModule

    class Network(JaxRLModule):
        def setup(self):
            for part in PARTS:
                setattr(self, part, nnx.Linear(3, 4, rngs=nnx.Rngs(0)))
            self.log_alpha = nnx.Param(jnp.zeros(()))


config = SACConfig().framework(BACKEND, compile="none")
config = config.environment(
    observation_space=OBSERVATIONS, action_space=gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
)
with refused(ConfigError, "no optimizer steps", "trunk.", "freeze_parameters"):
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=Network)).build_learner()
