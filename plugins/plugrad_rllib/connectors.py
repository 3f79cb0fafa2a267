"""Env-to-module connectors of RLlib as wrappers of environments: observation preprocessors and simple pieces.

    config.env_runners(env_wrappers=[MyPreprocessor])
    config.env_runners(env_wrappers=[[PrevActionsPrevRewards, {"n_prev_rewards": 2}]])

A piece that is called with an environment is a wrapper, with one agent or with many. Each observation of the wrapped
environment is what the piece makes of the last one, and its space is what `recompute_output_observation_space` returns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.sampling.multi_agent.env_faces import as_agent_env
from plugrad.sampling.watched_episodes import WatchedEpisode
from plugrad_rllib.episodes import RLlibEpisode

KEPT = 1000
"""A piece sees at least so many of the last steps of an episode."""


class ConnectorV2:
    """A piece of an env-to-module connector. Its state, if it has some, is not in checkpoints.

    Args:
        input_observation_space: of the environment; set when the piece is put around one.
        input_action_space: of the environment; likewise.
        **kwargs: of RLlib's constructor; they are kept nowhere.

    Attributes:
        input_observation_space: see the argument. With many agents it is a Dict by agent.
        input_action_space: see the argument.
        observation_space: of what the piece gives.
    """

    input_observation_space: Any = None
    input_action_space: Any = None
    observation_space: Any = None

    def __new__(cls, *args: Any, **settings: Any) -> Any:
        """A piece; around an environment, if the first argument is one."""
        env = args[0] if args else None
        if env is None or isinstance(env, Space):
            return super().__new__(cls)
        piece = super().__new__(cls)
        piece.__init__(**settings)  # type: ignore[misc]  # it is not what is returned
        return _PreprocessedEnv(env, piece) if isinstance(env, gym.Env) else _PreprocessedAgents(env, piece)

    def __init__(
        self,
        input_observation_space: Space[Any] | None = None,
        input_action_space: Space[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.input_observation_space = input_observation_space
        self.input_action_space = input_action_space

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """The space of what the piece gives.

        Args:
            input_observation_space: of the environment; with many agents a Dict by agent.
            input_action_space: likewise.

        Returns:
            The same space, unless the method is overridden.
        """
        return input_observation_space

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        """Change the last observations of the episodes, by `episode.set_observations`.

        Args:
            rl_module: None: a wrapper has no module.
            batch: an empty dict.
            episodes: a list of one `RLlibEpisode`.
            **kwargs: `explore` and `persistent_data`, which are None, and `shared_data`.

        Returns:
            The batch.
        """
        raise NotImplementedError

    @staticmethod
    def single_agent_episode_iterator(
        episodes: Iterable[Any], agents_that_stepped_only: bool = True, **others: Any
    ) -> Iterator[Any]:
        """The episodes; of those with many agents, the parts of the agents.

        Args:
            episodes: of `__call__`.
            agents_that_stepped_only: leave out agents that the last step gave no observation.
            **others: `zip_with_batch_column`, which is refused.

        Yields:
            Episodes of one agent.

        Raises:
            ConfigError: an argument has no counterpart.
        """
        if any(each is not None for each in others.values()):
            raise ConfigError(
                f"single_agent_episode_iterator has no {', '.join(others)}: batches are made later"
            )
        for episode in episodes:
            if not episode.agent_to_module:
                yield episode
                continue
            last = episode.get_observations(-1)
            for agent, part in episode.agent_episodes.items():
                if agent in last or not agents_that_stepped_only:
                    yield part

    @staticmethod
    def add_batch_item(
        batch: Any, column: str, item_to_add: Any, single_agent_episode: Any, **others: Any
    ) -> None:
        """Give the module another observation than the environment's, in a piece around an environment.

        Args:
            batch: of `__call__`.
            column: "obs".
            item_to_add: the observation.
            single_agent_episode: one that `__call__` was given.
            **others: of RLlib's method; they have no effect.

        Raises:
            ConfigError: another column, or a piece of a learner connector.
        """
        if column != Columns.OBS or hasattr(single_agent_episode, "add_items"):
            raise ConfigError(
                f"add_batch_item({column!r}): a piece around an environment gives 'obs' alone; a piece of a learner "
                "connector adds columns by add_n_batch_items"
            )
        single_agent_episode.set_observations(new_data=item_to_add, at_indices=-1)

    @staticmethod
    def add_n_batch_items(
        batch: Any, column: str, items_to_add: Sequence[Any], num_items: int, single_agent_episode: Any
    ) -> None:
        """Add a column to the batch of an episode, in a piece of a learner connector.

        Args:
            batch: of `__call__`.
            column: its name. "rewards" are those of the episode.
            items_to_add: one for each step.
            num_items: how many there are.
            single_agent_episode: one that `__call__` was given.

        Raises:
            ConfigError: there is not one item for each step, or it is a piece around an environment.
        """
        add = getattr(single_agent_episode, "add_items", None)
        if add is None:
            raise ConfigError(
                f"add_n_batch_items({column!r}): batches are made later: a piece of a learner connector adds columns"
            )
        add(column, items_to_add)


class SingleAgentObservationPreprocessor(ConnectorV2):
    """Changes the last observation of each agent: override `preprocess`, and the space if it is another."""

    def preprocess(self, observation: Any, episode: Any) -> Any:
        """The new observation.

        Args:
            observation: the last one, of one agent.
            episode: of this agent, an `RLlibEpisode`.

        Returns:
            What takes its place.
        """
        raise NotImplementedError

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        """See `ConnectorV2`."""
        for episode in self.single_agent_episode_iterator(episodes):
            changed = self.preprocess(observation=episode.get_observations(-1), episode=episode)
            episode.set_observations(new_data=changed, at_indices=-1)
        return batch


class MultiAgentObservationPreprocessor(ConnectorV2):
    """Changes the last observations of all agents together: override `preprocess`, and the space if it is another."""

    def preprocess(self, observations: Any, episode: Any) -> Any:
        """The new observations.

        Args:
            observations: the last ones, by agent.
            episode: an `RLlibEpisode`.

        Returns:
            What takes their place, by agent.
        """
        raise NotImplementedError

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        """See `ConnectorV2`."""
        for episode in episodes:
            before = episode.get_observations(-1)
            changed = self.preprocess(observations=before, episode=episode)
            episode.set_observations(new_data={**before, **changed}, at_indices=-1)
        return batch


ObservationPreprocessor = SingleAgentObservationPreprocessor


class PrevActionsPrevRewards(ConnectorV2):
    """Adds the previous rewards and actions, the latter as one-hot rows, to observations of discrete actions.

    An observation is then a dict of the original one, `prev_n_actions` `[n * choices]` and `prev_n_rewards` `[n]`, the
    oldest first; before the first step they are zero.

    Args:
        *args: spaces, as of `ConnectorV2`.
        multi_agent: whether there are many agents. The environment says so, too.
        n_prev_actions: how many actions.
        n_prev_rewards: how many rewards.
        **kwargs: of `ConnectorV2`.
    """

    ORIG_OBS_KEY = "_orig_obs"
    PREV_ACTIONS_KEY = "prev_n_actions"
    PREV_REWARDS_KEY = "prev_n_rewards"

    def __init__(
        self,
        *args: Any,
        multi_agent: bool = False,
        n_prev_actions: int = 1,
        n_prev_rewards: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.n_prev_actions, self.n_prev_rewards = n_prev_actions, n_prev_rewards

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """See `ConnectorV2`.

        Raises:
            ConfigError: actions are not discrete.
        """
        if isinstance(input_action_space, gym.spaces.Dict):  # of many agents
            return gym.spaces.Dict(
                {
                    agent: self._space(space, input_action_space[agent])
                    for agent, space in input_observation_space.spaces.items()
                }
            )
        return self._space(input_observation_space, input_action_space)

    def _space(self, observations: Any, actions: Any) -> gym.spaces.Dict:
        if not isinstance(actions, Discrete):
            raise ConfigError(f"PrevActionsPrevRewards is for discrete actions, found {actions}")
        spaces = {self.ORIG_OBS_KEY: observations}
        if self.n_prev_actions:
            width = self.n_prev_actions * int(actions.n)
            spaces[self.PREV_ACTIONS_KEY] = Box(0.0, 1.0, (width,), np.float32)
        if self.n_prev_rewards:
            spaces[self.PREV_REWARDS_KEY] = Box(-np.inf, np.inf, (self.n_prev_rewards,), np.float32)
        return gym.spaces.Dict(spaces)

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        """See `ConnectorV2`."""
        for episode in self.single_agent_episode_iterator(episodes):
            actions = self.input_action_space
            if episode.agent_id is not None:
                actions = actions[episode.agent_id]
            changed = {self.ORIG_OBS_KEY: episode.get_observations(-1)}
            if number := self.n_prev_actions:
                rows = np.zeros((number, int(actions.n)), np.float32)
                for row, action in enumerate(reversed(episode.get_actions(slice(-number, None))), 1):
                    rows[-row, int(action) - int(actions.start)] = 1.0
                changed[self.PREV_ACTIONS_KEY] = rows.ravel()
            if number := self.n_prev_rewards:
                rewards = episode.get_rewards(slice(-number, None))
                padded = np.zeros(number, np.float32)
                padded[number - len(rewards) :] = rewards
                changed[self.PREV_REWARDS_KEY] = padded
            episode.set_observations(new_data=changed, at_indices=-1)
        return batch


class _Piece:
    """A piece around one environment, with the episode that it sees."""

    def __init__(self, piece: ConnectorV2, env: Any, observations: Any, actions: Any) -> None:
        self.piece, self._env = piece, env
        piece.input_observation_space, piece.input_action_space = observations, actions
        self.space = piece.recompute_output_observation_space(observations, actions)
        piece.observation_space = self.space

    def begin(self, observation: Any, info: Any, agents: Mapping[Any, Any]) -> Any:
        """The first observation of an episode, as the piece makes it."""
        self._episode = WatchedEpisode("", self._env, 0, 0, [observation], infos=[info])
        return self._seen(agents)

    def step(self, action: Any, observation: Any, reward: Any, info: Any, agents: Mapping[Any, Any]) -> Any:
        """The next observation, as the piece makes it."""
        episode = self._episode
        for series, value in (
            (episode.actions, action),
            (episode.observations, observation),
            (episode.rewards, reward),
            (episode.infos, info),
        ):
            series.append(value)
            if len(series) > 2 * KEPT:
                del series[:KEPT]
        return self._seen(agents)

    def _seen(self, agents: Mapping[Any, Any]) -> Any:
        self._episode.agent_to_module |= agents
        given: dict[str, Any] = {}
        found = self.piece(
            rl_module=None,
            batch=given,
            episodes=[RLlibEpisode(self._episode)],
            explore=None,
            persistent_data=None,
            shared_data={},
        )
        if found:
            raise ConfigError(
                f"{type(self.piece).__name__} returned a batch with {', '.join(map(str, found))}; expected: a piece "
                "that writes observations into episodes, by episode.set_observations(new_data=..., at_indices=-1). "
                "One that makes a batch is a learner connector"
            )
        return self._episode.observations[-1]


class _PreprocessedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment of one agent with a piece around it."""

    def __init__(self, env: Any, piece: ConnectorV2) -> None:
        super().__init__(env)
        self._piece = _Piece(piece, env, env.observation_space, env.action_space)
        self.observation_space = self._piece.space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env`."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._piece.begin(observation, info, {}), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._piece.step(action, observation, reward, info, {}), reward, terminated, truncated, info


class _PreprocessedAgents:
    """An environment of many agents, of RLlib's or PettingZoo's parallel interface, with a piece around it."""

    def __init__(self, env: Any, piece: ConnectorV2) -> None:
        if hasattr(env, "agent_iter"):
            raise ConfigError(
                f"{type(piece).__name__} is for agents that act together, and {type(env).__name__} lets them act in "
                "turns: change its observations in a wrapper of PettingZoo"
            )
        self.env = env
        agents = as_agent_env(env, type(env).__name__)
        self.possible_agents = list(agents.possible_agents)
        self.action_spaces = {agent: agents.action_space(agent) for agent in self.possible_agents}
        own = {agent: agents.observation_space(agent) for agent in self.possible_agents}
        actions = gym.spaces.Dict(self.action_spaces)
        self._piece = _Piece(piece, env, gym.spaces.Dict(own), actions)
        self.observation_spaces = {agent: self._piece.space[agent] for agent in self.possible_agents}
        if callable(getattr(env, "observation_space", None)):  # PettingZoo's interface
            self.observation_space = self.observation_spaces.__getitem__
            self.action_space = self.action_spaces.__getitem__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """See RLlib's `MultiAgentEnv`."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._piece.begin(dict(observations), infos, dict.fromkeys(observations)), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """See RLlib's `MultiAgentEnv`."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        seen = self._piece.step(actions, dict(observations), rewards, infos, dict.fromkeys(observations))
        return seen, rewards, terminated, truncated, infos
