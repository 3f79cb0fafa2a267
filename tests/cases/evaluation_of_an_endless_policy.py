"""An evaluation in an environment without a limit of steps ends, and the log says which episodes were cut."""

import logging

import gymnasium as gym
import numpy as np
from case import check, in_environment

lines: list[str] = []


class Keep(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        lines.append(record.getMessage())


class Treadmill(gym.Env):
    """Whatever is done, the walk goes on."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


logging.getLogger("plugrad").addHandler(Keep())
config = in_environment(Treadmill, train_batch_size=8, minibatch_size=8, num_epochs=1)
algorithm = config.evaluation(evaluation_max_episode_steps=60).build_algo()
found = algorithm.evaluate(2)
algorithm.stop()
check(found["episode_return_mean"] == 60.0, f"a mean return of {found['episode_return_mean']}, not 60")
cut = [line for line in lines if "evaluation_max_episode_steps=60" in line]
check(cut, f"no line says that episodes were cut: {lines}")
