"""A Box observation of shape () trains alone and as a part of a Dict, stepped in this process and asynchronously."""

import gymnasium as gym
import numpy as np
from case import check, in_environment


class Thermometer(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.read(), {}

    def read(self):
        return np.array(self.np_random.uniform(-1, 1), np.float32)

    def step(self, action):
        self.clock += 1
        return self.read(), 1.0, self.clock >= 7, False, {}


class Instrument(Thermometer):
    observation_space = gym.spaces.Dict({"heat": Thermometer.observation_space})

    def read(self):
        return {"heat": super().read()}


for env in (Thermometer, Instrument):
    for vectorization in ("sync", "async"):
        config = in_environment(env, train_batch_size=16, minibatch_size=16, num_epochs=1)
        config = config.env_runners(num_envs_per_env_runner=2, vectorization_mode=vectorization)
        algorithm = config.build_algo()
        loss = algorithm.train()["learners/default_policy/total_loss"]
        algorithm.stop()
        check(np.isfinite(loss), f"{env.__name__}, {vectorization}: a loss of {loss}")
