"""A running episode with the methods that RLlib's have, for callbacks and observation preprocessors."""

from collections.abc import Mapping, Sequence
from typing import Any

from plugrad.errors import ConfigError
from plugrad.sampling.watched_episodes import WatchedEpisode
from plugrad.types import DEFAULT_MODULE_ID, AgentID, ModuleID

Indices = int | slice | Sequence[int] | None


class RLlibEpisode:
    """What RLlib's `SingleAgentEpisode` and `MultiAgentEpisode` say of a running episode.

    Its other attributes are those of `WatchedEpisode`, such as `id_`, `custom_data`, `is_done` and `get_return()`.

    Args:
        watched: the episode.
        module_id: the module that acts, where there is one agent.
        agent_id: the agent, of the part of one agent of many.
        whole: the episode of which it is a part.

    Attributes:
        agent_id: see the argument.
        module_id: see the argument.
        observation_space: for connectors, which set it; nothing reads it.
    """

    def __init__(
        self,
        watched: WatchedEpisode,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        agent_id: AgentID | None = None,
        whole: WatchedEpisode | None = None,
    ) -> None:
        self._watched, self._whole = watched, whole
        self.module_id, self.agent_id = module_id, agent_id
        self.observation_space: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._watched, name)

    def __len__(self) -> int:
        """Steps so far."""
        return len(self._watched)

    def get_observations(self, indices: Indices = None, agent_ids: Any = None) -> Any:
        """Observations: one for an int, a list for a slice, a list of ints or None.

        Args:
            indices: of the steps; -1 is the present observation.
            agent_ids: with many agents, whose; None: of all.
        """
        return _chosen(self._watched.observations, indices, agent_ids)

    def get_actions(self, indices: Indices = None, agent_ids: Any = None) -> Any:
        """Actions, as `get_observations`."""
        return _chosen(self._watched.actions, indices, agent_ids)

    def get_rewards(self, indices: Indices = None, agent_ids: Any = None) -> Any:
        """Rewards, as `get_observations`."""
        return _chosen(self._watched.rewards, indices, agent_ids)

    def get_infos(self, indices: Indices = None, agent_ids: Any = None) -> Any:
        """Infos, as `get_observations`."""
        return _chosen(self._watched.infos, indices, agent_ids)

    def set_observations(self, *, new_data: Any, at_indices: int = -1) -> None:
        """Replace one observation.

        Args:
            new_data: the new one.
            at_indices: of which step; of the part of one agent only the last, -1.

        Raises:
            ConfigError: an earlier one of one agent's part.
        """
        self._watched.observations[at_indices] = new_data
        if self._whole is not None:
            if at_indices != -1:
                raise ConfigError(
                    f"set_observations(at_indices={at_indices!r}) of agent {self.agent_id!r}: only the last "
                    "observation can be replaced, at_indices=-1",
                    agent=self.agent_id,
                )
            self._whole.observations[-1][self.agent_id] = new_data

    @property
    def is_terminated(self) -> bool:
        """Whether the environment reached a terminal state."""
        return self._watched.terminated

    @property
    def is_truncated(self) -> bool:
        """Whether a limit ended the episode."""
        return self._watched.truncated

    @property
    def t(self) -> int:
        """Steps of the episode so far."""
        return self._watched.t_started + len(self._watched)

    @property
    def env_t(self) -> int:
        """Steps of the environment so far."""
        return self.t

    @property
    def agent_ids(self) -> list[AgentID]:
        """The agents that took part so far."""
        return list(self._watched.agent_to_module)

    def module_for(self, agent_id: AgentID) -> ModuleID:
        """The module that acts for an agent."""
        return self._watched.agent_to_module[agent_id]

    @property
    def agent_episodes(self) -> Mapping[AgentID, "RLlibEpisode"]:
        """With many agents, the part of each agent: the steps in which it had something."""
        return {agent: self._part_of(agent) for agent in self.agent_ids}

    def _part_of(self, agent: AgentID) -> "RLlibEpisode":
        whole = self._watched
        observations, actions, rewards, infos = (
            [each[agent] for each in steps if agent in each]
            for steps in (whole.observations, whole.actions, whole.rewards, whole.infos)
        )
        part = WatchedEpisode(
            whole.id_,
            whole.env,
            whole.env_index,
            whole.t_started,
            observations,
            actions,
            rewards,
            infos,
            terminated=whole.terminated,
            truncated=whole.truncated,
        )
        return RLlibEpisode(part, self.module_for(agent), agent, whole)


def _chosen(steps: list[Any], indices: Indices, agent_ids: Any) -> Any:
    if agent_ids is not None:
        wanted = {agent_ids} if isinstance(agent_ids, str) else set(agent_ids)
        steps = [{agent: each for agent, each in step.items() if agent in wanted} for step in steps]
    if indices is None:
        return list(steps)
    if isinstance(indices, int | slice):
        return steps[indices]
    return [steps[index] for index in indices]
