"""A policy cloned from perfect demonstrations acts well, though Minari and an own recording sort the keys of a Dict."""

import os
import tempfile
import warnings

import gymnasium as gym
import numpy as np
from case import BACKEND, check

from plugrad import SingleAgentEpisode
from plugrad.offline import save_episodes
from plugrad_bc import BCConfig

PART = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
LENGTH, EPISODES = 10, 40


class Wind(gym.Env):
    """1 is right where speed is positive; noise means nothing."""

    observation_space = gym.spaces.Dict([("speed", PART), ("noise", PART)])
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.measure(), {}

    def measure(self):
        self.seen = {key: self.np_random.uniform(-1, 1, 1).astype(np.float32) for key in ("speed", "noise")}
        return self.seen

    def step(self, action):
        reward = float(action == int(self.seen["speed"][0] > 0))
        self.clock += 1
        return self.measure(), reward, self.clock >= LENGTH, False, {}


def recording(folder):
    """Rows in the order of sorted keys: noise, speed."""
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(EPISODES):
        rows = rng.uniform(-1, 1, (LENGTH + 1, 2)).astype(np.float32)
        right = (rows[:-1, 1] > 0).astype(np.int64)
        episodes.append(
            SingleAgentEpisode(observations=rows, actions=right, rewards=np.ones(LENGTH), terminated=True)
        )
    space = gym.spaces.Dict([("noise", PART), ("speed", PART)])
    save_episodes(folder, episodes, observation_space=space, action_space=Wind.action_space)
    return folder


def minari_data(folder):
    os.environ["MINARI_DATASETS_PATH"] = folder
    import minari

    collector = minari.DataCollector(Wind())
    for seed in range(EPISODES):
        seen, _ = collector.reset(seed=seed)
        ended = False
        while not ended:
            seen, _, ended, _, _ = collector.step(int(seen["speed"][0] > 0))
    collector.create_dataset("cases/wind-v0")
    return "minari:cases/wind-v0"


warnings.simplefilter("ignore")
for make in (recording, minari_data):
    with tempfile.TemporaryDirectory() as folder:
        config = BCConfig().framework(BACKEND, compile="none").debugging(seed=0).environment(Wind)
        config = config.offline_data(input_=make(f"{folder}/data")).rl_module(
            model_config={"fcnet_hiddens": []}
        )
        config = config.training(train_batch_size=256, minibatch_size=64, lr=0.2)
        algorithm = config.build_algo()
        for _ in range(8):
            algorithm.train()
        reached = algorithm.evaluate(20)["episode_return_mean"]
        algorithm.stop()
        check(
            reached > 0.85 * LENGTH,
            f"{make.__name__}: a return of {reached} of {LENGTH}; chance is {LENGTH / 2}",
        )
