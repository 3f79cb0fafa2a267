"""Episodes while they run, for listeners: `episode_started`, `episode_stepped`, `episode_ended` and `sample_ended`.

Where no listener has these hooks, nothing of this file is called.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import unflatten

from plugrad.sampling.flat_observations import env_observation_space
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.spaces.kinds import is_box
from plugrad.spaces.layout import in_arrays
from plugrad.types import AgentID, ModuleID

STARTED, STEPPED, ENDED = "episode_started", "episode_stepped", "episode_ended"
SAMPLED = "sample_ended"


@dataclass(eq=False)
class WatchedEpisode:
    """An episode of one environment, from its first step on.

    Observations, actions, rewards and infos are the environment's own: not scaled, not flat. With many agents each of
    them is a dict `{agent: ...}` of what the step had.

    Attributes:
        id_: as in the episodes that the env runner returns.
        env: the environment, with its wrappers. When the episode ends it is still where the episode ended.
        env_index: its place among the environments of the env runner.
        t_started: steps before those that are here: of an episode that a resumed run replayed.
        observations: one more than there are actions.
        actions: of the steps so far.
        rewards: of the steps so far.
        infos: as many as observations.
        agent_to_module: with many agents, which module acts for each agent so far.
        terminated: whether the environment reached a terminal state.
        truncated: whether a limit ended the episode.
        custom_data: for listeners, which may keep there what they like until the episode ends.
    """

    id_: str
    env: Any
    env_index: int
    t_started: int = 0
    observations: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[Any] = field(default_factory=list)
    infos: list[Any] = field(default_factory=list)
    agent_to_module: dict[AgentID, ModuleID] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    custom_data: dict[Any, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Steps so far that are here."""
        return len(self.rewards)

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated

    def get_return(self) -> float:
        """The sum of the rewards so far, undiscounted; with many agents over all of them."""
        parts = (each.values() if isinstance(each, Mapping) else [each] for each in self.rewards)
        return float(sum(float(np.asarray(reward).item()) for part in parts for reward in part))


class EpisodeNotifier:
    """Tells listeners of the episodes of one env runner.

    Args:
        notify: `notify(hook, **arguments)` calls a hook of all listeners.
        hooks: those that somebody has.

    Attributes:
        num_begun: episodes that the env runner has begun; the next one's id is its successor.
        last: the number of the last episode that listeners hear of; None: they hear of all.
    """

    def __init__(self, notify: Callable[..., None], hooks: Collection[str]) -> None:
        self._notify, self._hooks = notify, frozenset(hooks)
        self.num_begun = 0
        self.last: int | None = None

    @property
    def sees_steps(self) -> bool:
        """Whether somebody hears of more than whole samples."""
        return bool(self._hooks & {STARTED, STEPPED, ENDED})

    def next_id(self) -> str:
        """The id of the episode that begins now."""
        self.num_begun += 1
        return str(self.num_begun)

    def started(self, episode: WatchedEpisode, observation: Any, info: Any) -> None:
        """Say that an episode has begun.

        Args:
            episode: without an observation.
            observation: the first one.
            info: of the reset.
        """
        episode.observations.append(observation)
        episode.infos.append(info)
        self._say(STARTED, episode)

    def stepped(self, episode: WatchedEpisode, action: Any, observation: Any, reward: Any, info: Any) -> None:
        """Say that an episode has gone a step further, and whether that was its last one.

        Args:
            episode: with its flags.
            action: of the step.
            observation: to which it led.
            reward: of the step.
            info: of the step.
        """
        episode.actions.append(action)
        episode.observations.append(observation)
        episode.rewards.append(reward)
        episode.infos.append(info)
        self._say(STEPPED, episode)
        if episode.is_done:
            self._say(ENDED, episode)

    def sampled(self, episodes: list[Any]) -> None:
        """Say that a sample is complete."""
        if SAMPLED in self._hooks:
            self._notify(SAMPLED, episodes=episodes)

    def _say(self, hook: str, episode: WatchedEpisode) -> None:
        if hook in self._hooks and (self.last is None or int(episode.id_) <= self.last):
            self._notify(hook, episode=episode)


class WatchedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment of one agent of whose episodes listeners hear.

    Args:
        env: the environment.
        index: its place among the environments of the env runner.
        notifier: tells listeners.
        running_id: `running_id(index)`, the id of an episode that is running already.
    """

    def __init__(
        self, env: ReplayableEnv, index: int, notifier: EpisodeNotifier, running_id: Callable[[int], str]
    ) -> None:
        super().__init__(env)
        self._replayable, self._index, self._notifier, self._running_id = env, index, notifier, running_id
        self._space = in_arrays(env_observation_space(env.env))
        self._episode: WatchedEpisode | None = None

    @property
    def place(self) -> str:
        """See `ReplayableEnv.place`."""
        return self._replayable.place

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See `ReplayableEnv.reset`."""
        observation, info = answer = self.env.reset(seed=seed, options=options)
        self._episode = episode = WatchedEpisode(self._notifier.next_id(), self._replayable.env, self._index)
        self._notifier.started(episode, self._own(observation), info)
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See `ReplayableEnv.step`."""
        episode = self._continued() if self._episode is None else self._episode
        observation, reward, terminated, truncated, info = answer = self.env.step(action)
        episode.terminated, episode.truncated = bool(terminated), bool(truncated)
        self._notifier.stepped(episode, _copy(action), self._own(observation), reward, info)
        return answer

    def _continued(self) -> WatchedEpisode:
        """An episode that a resumed run replayed: its past is not known."""
        replayable = self._replayable
        observation, info = replayable.last_observation, replayable.last_info
        self._episode = WatchedEpisode(
            self._running_id(self._index),
            replayable.env,
            self._index,
            replayable.num_steps,
            [self._own(observation)],
            infos=[info],
        )
        return self._episode

    def _own(self, row: Any) -> Any:
        """An observation in the structure of the environment's space; the environment may write into its arrays."""
        return _copy(row) if is_box(self._space) else unflatten(self._space, np.array(row))


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
