"""All agents have ended and `terminateds["__all__"]` stays False: the episode is over, in training and evaluation."""

import gymnasium as gym
import numpy as np
from case import check, in_environment

from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

LENGTH = 5


class ForgetsAll:
    """Two agents end in the same step; nobody says that the episode has."""

    possible_agents = ("left", "right")
    observation_spaces = dict.fromkeys(possible_agents, gym.spaces.Box(-1.0, 1.0, (2,), np.float32))
    action_spaces = dict.fromkeys(possible_agents, gym.spaces.Discrete(2))
    steps_of_nobody = 0

    def reset(self, *, seed=None, options=None):
        self.clock = 0
        return {name: np.zeros(2, np.float32) for name in self.possible_agents}, {}

    def step(self, actions):
        ForgetsAll.steps_of_nobody += not actions
        self.clock += 1
        over = self.clock >= LENGTH
        seen = {name: np.full(2, self.clock / 10, np.float32) for name in actions}
        ended = {**dict.fromkeys(actions, over), "__all__": False}
        return seen, dict.fromkeys(actions, 1.0), ended, {"__all__": False}, {}


for kind, settings in (
    (PPOConfig, {"train_batch_size": 20, "minibatch_size": 20, "num_epochs": 1}),
    (
        DQNConfig,
        {"train_batch_size": 16, "minibatch_size": 16, "num_steps_sampled_before_learning_starts": 10},
    ),
):
    algorithm = in_environment(ForgetsAll, kind, **settings).build_algo()
    rows = [algorithm.train() for _ in range(8)]
    episodes = sum(row["env_runners/num_episodes"] for row in rows)
    check(episodes > 0, f"{kind.__name__}: eight iterations ended no episode")
    results = rows[-1]
    mean = results["env_runners/episode_return_mean"]
    check(mean == 2 * LENGTH, f"{kind.__name__}: mean return {mean}, not {2 * LENGTH}")
    evaluated = algorithm.evaluate(1)["episode_return_mean"]
    check(evaluated == 2 * LENGTH, f"{kind.__name__}: an evaluation of {evaluated}, not {2 * LENGTH}")
    algorithm.stop()
check(not ForgetsAll.steps_of_nobody, f"{ForgetsAll.steps_of_nobody} steps were made without an action")
