"""What the tests of many agents share: settings, environments, and a policy."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import sampling

from plugrad.config import field
from plugrad.episodes import concat_chunks
from plugrad.sampling.multi_agent.env_runner import MultiAgentEnvRunner


@dataclass(frozen=True, kw_only=True)
class Settings(sampling.Sampling):
    """A config of one environment."""

    num_envs_per_env_runner: int = field(1)
    rollout_fragment_length: int | None = field(4)


def make_runner(env, act=None, seed=0, initial_state=None, **settings) -> MultiAgentEnvRunner:
    config = Settings(env=env, **settings)
    return MultiAgentEnvRunner(config=config, act=act or count, seed=seed, initial_state=initial_state)


def count(module_id, observations, state, **mask):
    """The action is the first number of the observation modulo 4."""
    return {"actions": observations[:, 0].astype(np.int64) % 4, "twice": 2 * observations[:, 0]}


class Pair:
    """A parallel environment in PettingZoo's interface: the left agent ends after two steps, the right one after five.

    An observation is the step, a reward the action.
    """

    possible_agents = ("left", "right")
    ENDS: ClassVar = {"left": 2, "right": 5}

    def observation_space(self, agent):
        return gym.spaces.Box(0, 9, (1,))

    def action_space(self, agent):
        return gym.spaces.Discrete(4)

    def reset(self, seed=None, options=None):
        self.step_number = 0
        self.agents = list(self.possible_agents)
        return self._all(np.zeros(1, np.float32)), self._all({})

    def step(self, actions):
        assert list(actions) == self.agents
        self.step_number += 1
        observations = self._all(np.full(1, self.step_number, np.float32))
        terminations = {agent: self.step_number == self.ENDS[agent] for agent in self.agents}
        truncations, infos = self._all(False), self._all({})
        self.agents = [agent for agent in self.agents if not terminations[agent]]
        rewards = {agent: float(action) for agent, action in actions.items()}
        return observations, rewards, terminations, truncations, infos

    def _all(self, value):
        return dict.fromkeys(self.agents, value)


AGENTS = ("a", "b", "c")


class Event(NamedTuple):
    """What one agent gets in one step."""

    is_observed: bool = False
    reward: int | None = None
    end: str | None = None


class Scripted:
    """An environment with RLlib's interface that does what a script says.

    The script is a list of `{agent: Event}`, the first of the reset. The last step ends the episode. An observation is
    the number of the agent and the step.
    """

    possible_agents = AGENTS
    observation_spaces: ClassVar = dict.fromkeys(AGENTS, gym.spaces.Box(0, 99, (2,)))
    action_spaces: ClassVar = dict.fromkeys(AGENTS, gym.spaces.Discrete(100))

    def __init__(self, script, end="terminated"):
        self.script, self.end = script, end

    def reset(self, *, seed=None, options=None):
        self.t = 0
        self.acting = [agent for agent, event in self.script[0].items() if event.is_observed]
        return self._observations(), {}

    def step(self, actions):
        assert sorted(actions) == sorted(self.acting)
        assert all(action == self.t for action in actions.values())
        self.t += 1
        events = self.script[self.t]
        self.acting = [agent for agent, event in events.items() if event.is_observed and not event.end]
        rewards = {agent: event.reward for agent, event in events.items() if event.reward is not None}
        flags = []
        for kind in ("terminated", "truncated"):
            ended = {agent: event.end == kind for agent, event in events.items() if event.end}
            flags.append({**ended, "__all__": self.t == len(self.script) - 1 and self.end == kind})
        return self._observations(), rewards, *flags, {}

    def _observations(self):
        events = self.script[self.t].items()
        return {
            a: np.array([AGENTS.index(a), self.t], np.float32) for a, event in events if event.is_observed
        }


def act_by_step(module_id, observations, state, **mask):
    """The action is the step."""
    return {"actions": observations[:, 1].astype(np.int64)}


def joined(chunks):
    """The episodes of all agents, `{(environment's episode, agent): episode}`, of chunks in the order of sampling."""
    parts = {}
    for chunk in chunks:
        for agent, episode in chunk.agent_episodes.items():
            before = parts.setdefault((chunk.id_, agent), [])
            assert episode.t_started == sum(map(len, before))
            before.append(episode)
    return {key: concat_chunks(each) for key, each in parts.items()}
