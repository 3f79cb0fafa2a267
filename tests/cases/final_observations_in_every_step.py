"""A vectorised environment with `final_obs` in every step, as array programs have: they count where one ended."""

import gymnasium as gym
import numpy as np
from case import BACKEND, check, in_environment
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

assert BACKEND
LENGTH = 4


class Ticks(gym.Env):
    observation_space = gym.spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)


class ManyTicks(VectorEnv):
    """Counts the steps of its episodes, which are cut after four; infos have one shape in every step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs=1, **settings):
        self.num_envs = num_envs
        self.single_observation_space = Ticks.observation_space
        self.single_action_space = Ticks.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.clock = np.arange(self.num_envs, dtype=np.float32)[:, None] % LENGTH
        return self.clock.copy(), {}

    def step(self, actions):
        self.clock = self.clock + 1
        final = self.clock.copy()
        ended = self.clock[:, 0] >= LENGTH
        self.clock[ended] = 0
        infos = {"final_obs": final, "_final_obs": ended}
        ones = np.ones(self.num_envs, np.float32)
        return self.clock.copy(), ones, np.zeros_like(ended), ended, infos


gym.register("Ticks-v0", entry_point=Ticks, vector_entry_point=ManyTicks)
config = in_environment("Ticks-v0", train_batch_size=32, minibatch_size=32, num_epochs=1)
config = config.env_runners(num_envs_per_env_runner=2, vectorization_mode="vector_entry_point")
algorithm = config.build_algo()
last = [
    float(np.asarray(episode.observations)[-1, 0])
    for _ in range(3)
    for episode in algorithm.sample()
    if episode.truncated
]
loss = algorithm.train()["learners/default_policy/total_loss"]
algorithm.stop()
check(last and set(last) == {float(LENGTH)}, f"last observations of episodes: {last}, not {LENGTH}")
check(np.isfinite(loss), f"a loss of {loss}")
