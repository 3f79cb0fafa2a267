"""Two runs for the tests of partial loads: one whose weights are taken, and one that gets them.

Every part of the first differs from the second's: weights, target networks, and the statistics of observations, whose
numbers are far from 0, so that weights without their statistics act otherwise.
"""

import gymnasium as gym
import numpy as np

from plugrad import DEFAULT_MODULE_ID
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

P = DEFAULT_MODULE_ID
AGENTS = ("left", "right")
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
CHOICES, FORCES = gym.spaces.Discrete(3), gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
RAW = np.random.default_rng(5).normal(2.0, 4.0, (256, 3)).astype(np.float32)
"""Observations as an environment gives them."""

OFF_POLICY = {"train_batch_size": 8, "minibatch_size": 8}
KINDS = {
    "ppo": (PPOConfig, CHOICES, {"train_batch_size": 16, "minibatch_size": None}),
    "dqn": (DQNConfig, CHOICES, OFF_POLICY),
    "sac": (SACConfig, FORCES, OFF_POLICY),
}
WITH_TARGETS = ("dqn", "sac")
LENGTH = 5
"""Steps of an episode."""


class Drift(gym.Env):
    """One agent, whose three numbers have means of 1 and deviations of 3; each step gives a reward of 2."""

    observation_space = OBSERVATIONS

    def __init__(self, actions=CHOICES):
        self.action_space = actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.num_steps = 0
        return self._numbers(), {}

    def step(self, action):
        self.num_steps += 1
        return self._numbers(), 2.0, self.num_steps == LENGTH, False, {}

    def _numbers(self):
        return self.np_random.normal(1.0, 3.0, 3).astype(np.float32)


class TwoDrifts:
    """Two agents of RLlib's interface, each with numbers of its own mean and deviation."""

    possible_agents = AGENTS
    observation_spaces = dict.fromkeys(AGENTS, OBSERVATIONS)

    def __init__(self, actions=CHOICES):
        self.action_spaces = dict.fromkeys(AGENTS, actions)

    def reset(self, *, seed=None, options=None):
        self.rng, self.num_steps = np.random.default_rng(seed), 0
        return self._numbers(), {}

    def step(self, actions):
        self.num_steps += 1
        ended = {**dict.fromkeys(actions, self.num_steps == LENGTH), "__all__": self.num_steps == LENGTH}
        return self._numbers(), dict.fromkeys(actions, 2.0), ended, {"__all__": False}, {}

    def _numbers(self):
        return {
            agent: self.rng.normal(1.0 + n, 3.0 + n, 3).astype(np.float32) for n, agent in enumerate(AGENTS)
        }


def config_of(kind, backend="numpy", *, seed=0, two=False, normalized=True, rewards=False):
    """A tiny config of an algorithm, with one agent or two that have a module each."""
    config_class, actions, training = KINDS[kind]
    config = (
        config_class()
        .framework(backend, compile="none")
        .environment(TwoDrifts if two else Drift, env_config={"actions": actions})
        .env_runners(normalize_observations=normalized, normalize_rewards=rewards)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(**training)
        .debugging(seed=seed)
    )
    to_itself = {agent: agent for agent in AGENTS}
    return config.multi_agent(policies=list(AGENTS), agent_to_module=to_itself) if two else config


def trained(kind, backend="numpy", *, seed=0, num_steps=20, **settings):
    """A run after some sampling, with weights and target networks as training would have moved them.

    No update computes them: gradients of the numpy backend take seconds.
    """
    run = config_of(kind, backend, seed=seed, **settings).build_algo()
    run.sample(num_steps)
    rng = np.random.default_rng(seed)
    state = run.learner_group.get_state(["rl_module", "targets"])["learner"]
    moved = {component: {} for component in state}
    for component, modules in state.items():
        for module_id, entries in modules.items():
            moved[component][module_id] = {
                name: (each + rng.normal(0.0, 0.5, each.shape)).astype(each.dtype)
                if each.dtype.kind == "f"
                else each
                for name, each in entries.items()
            }
    run.learner_group._change("set_state", moved)  # without the warning that a user gets
    return run


def equal(one, other):
    """Whether two mappings have the same names and the same numbers."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


class Parts:
    """What a run has now, by module: `weights`, `targets`, `statistics` and what its policy does with raw numbers."""

    def __init__(self, run):
        state = run.learner_group.get_state()["learner"]
        self.weights, self.targets = state["rl_module"], state["targets"]
        self.rest = {name: state[name] for name in ("optimizer", "coefficients", "counters")}
        self.statistics = run.get_statistics()["observations"]
        self.rewards = run.get_statistics()["rewards"]
        self.acts = {each: np.asarray(run.get_policy(each).predict(RAW)[0]) for each in self.statistics}

    def target_is_weights(self, module_id):
        """Whether a target network is equal to the module's weights; it may hold some of them alone."""
        weights, target = self.weights[module_id], self.targets[module_id]
        of_weights = {name: each for name, each in target.items() if name in weights}
        return bool(of_weights) and equal(of_weights, {name: weights[name] for name in of_weights})
