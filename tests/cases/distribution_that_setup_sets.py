"""The `action_dist_cls` that a module sets in `setup()`, RLlib's name, is the distribution that it acts by."""

import gymnasium as gym
import numpy as np
from case import BACKEND, P, check, small

from plugrad import Columns, RLModuleSpec, numpy_ops
from plugrad.distributions import SquashedGaussian, squashed_gaussian_class
from plugrad_bc import BCConfig

BOUNDED = gym.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 3.0], np.float32))
WIDE = gym.spaces.Box(-50.0, 50.0, (3,), np.float32)
if BACKEND == "torch":
    import torch

    from plugrad_torch import TorchRLModule as Base

    def layer():
        return torch.nn.Linear(3, 4)

elif BACKEND == "tf2":
    import tensorflow as tf

    from plugrad_tf2 import Tf2RLModule as Base

    def layer():
        return tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4)])

else:
    from flax import nnx

    from plugrad_jax import JaxRLModule as Base

    def layer():
        return nnx.Linear(3, 4, rngs=nnx.Rngs(0))


class Squashed(Base):
    def setup(self):
        self.pi = layer()
        self.action_dist_cls = squashed_gaussian_class(self.action_space, numpy_ops)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.pi(batch[Columns.OBS])}


spec = RLModuleSpec(module_class=Squashed, observation_space=WIDE, action_space=BOUNDED)
config = small(BCConfig, observations=WIDE, actions=BOUNDED).rl_module(rl_module_spec=spec)
learner = config.build_learner()
rows = np.random.default_rng(0).normal(0, 10, (64, 3)).astype(np.float32)
actions = learner.compute_actions(rows, explore=False)["actions"]
check(
    (actions >= BOUNDED.low).all() and (actions <= BOUNDED.high).all(),
    f"greedy actions from {actions.min(0)} to {actions.max(0)}: they are not squashed into the bounds",
)
found = learner.module[P].get_train_action_dist_cls()
check(issubclass(found, SquashedGaussian), f"it trains by {found}")
