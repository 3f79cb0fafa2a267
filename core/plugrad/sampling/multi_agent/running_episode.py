"""`RunningMultiAgentEpisode`: the running episode of one environment with many agents; its state."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from plugrad.errors import EnvContractError
from plugrad.sampling.env_checker import describe
from plugrad.sampling.info_metrics import InfoMetrics, numbers_of_info
from plugrad.sampling.multi_agent.acting_modules import ActingModules
from plugrad.sampling.multi_agent.agent_env import Outcome
from plugrad.sampling.multi_agent.agent_track import AgentTrack, EnvProgress
from plugrad.sampling.multi_agent.module_batches import ModuleBatches
from plugrad.sampling.multi_agent.module_mapping import EpisodeStart
from plugrad.sampling.multi_agent.replayable_agent_env import ReplayableAgentEnv
from plugrad.types import AgentID, ModuleID

ModuleOf = Callable[[AgentID, EpisodeStart], ModuleBatches]
"""The module that acts for an agent in an episode."""

MAX_IDLE_STEPS = 1000
"""So many steps in a row may pass in which no agent acts; an environment that never ends would be stepped for ever."""


class RunningMultiAgentEpisode:
    """Steps one environment, and gives the observations of its agents to their modules.

    Args:
        env: the environment.
        index: its place among the environments of the env runner.
        id_: of the episode.
        module_of: asked once for each agent of the episode.
        info_metrics: which numbers of infos become metrics, and how; see `InfoMetrics`.

    Attributes:
        tracks: of all agents that took part, `{agent: track}`.
        progress: steps so far, and the actions chosen for the next one.
        num_steps: steps since the last chunk.
        terminated: whether the episode ended in a terminal state.
        truncated: whether a limit ended it.
        first: the observations and infos with which it began.
        acted: the actions of the last step.
        outcome: of the last step.
    """

    def __init__(
        self,
        env: ReplayableAgentEnv,
        index: int,
        id_: str,
        module_of: ModuleOf,
        info_metrics: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.env, self.id_ = env, id_
        self._info_metrics = info_metrics
        self._module_of = module_of
        self._modules: dict[ModuleID, ModuleBatches] = {}
        self.tracks: dict[AgentID, AgentTrack] = {}
        self.progress = EnvProgress(env.name, index)
        self.num_steps = self._idle_steps = 0
        self.terminated = self.truncated = False
        self.first: tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]] = ({}, {})
        self.acted: Mapping[AgentID, Any] = {}
        self.outcome: Outcome | None = None

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated

    @property
    def module_ids(self) -> set[ModuleID]:
        """The modules whose agents took part."""
        return set(self._modules)

    def begin(self) -> None:
        """Reset the environment.

        Raises:
            EnvContractError: it breaks its contract.
        """
        try:
            observations, infos = self.env.begin()
        except Exception as error:
            self._say_where(error)
            raise
        self.first = observations, infos
        self.start = EpisodeStart(self.id_, self.env.mapping_seed)
        for agent, observation in observations.items():
            track = self._arrive(agent)
            self._modules[track.module_id].add(track, observation, infos.get(agent), acts=True)

    def step(self) -> None:
        """Take the actions that were chosen.

        The episode also ends when all possible agents have ended, as in RLlib and PettingZoo.

        Raises:
            EnvContractError: the environment breaks its contract, or no agent is left or acts.
        """
        chosen = self.progress.actions
        self.progress.actions = {}
        actions = {agent: chosen[agent] for agent in self.env.possible_agents if agent in chosen}
        self.num_steps += 1
        self.progress.step += 1
        try:
            outcome = self.env.step(actions)
        except Exception as error:
            self._say_where(error)
            raise
        self.acted, self.outcome = actions, outcome
        self.terminated, self.truncated = outcome.is_terminated, outcome.is_truncated
        self._add_rewards(outcome.rewards)
        if not self.is_done:
            self._end_if_no_agent_is_left(outcome)
        going_on = (
            [track for track in self.tracks.values() if not track.is_done] if self._info_metrics else []
        )
        for agent, observation in outcome.observations.items():
            self._observe(agent, observation, outcome)
        for track in going_on:
            if track.agent in outcome.infos and track.info_metrics is not None:
                where = f"{self.progress}: agent {track.agent!r}"
                numbers = numbers_of_info(tuple(self._info_metrics), outcome.infos[track.agent] or {}, where)
                track.info_metrics.step(np.array([numbers]), np.zeros(1, np.bool_))
        for agent, track in self.tracks.items():
            if not track.is_done and agent not in outcome.observations:
                self._end_without_observation(track, *self._flags(agent, outcome))

    def add(self, agent: AgentID, module: ModuleBatches) -> AgentTrack:
        """Let an agent take part.

        Args:
            agent: its name.
            module: acts for it.

        Returns:
            Its track.
        """
        self._modules[module.module_id] = module
        id_, state = f"{self.id_}/{agent}", module.initial_state
        track = AgentTrack(agent, id_, module.module_id, self.progress, state=state)
        if self._info_metrics:
            track.info_metrics = InfoMetrics(self._info_metrics, 1)
        self.tracks[agent] = track
        return track

    def replay(self, state: Mapping[str, Any]) -> bool:
        """Replay the environment's episode, where the tracks of its agents are there already.

        Args:
            state: of `ReplayableAgentEnv.get_state`.

        Returns:
            Whether the agents that act next see what they saw last.
        """
        found = self.env.set_state(state)
        self.start = EpisodeStart(self.id_, self.env.mapping_seed)
        self.progress.step = int(state["num_steps"])
        acting = {agent for agent, track in self.tracks.items() if track.acts_next}
        if found is None or found[0].keys() != acting:
            return False
        observations, infos = found
        return all(
            self._modules[self.tracks[agent].module_id].would_repeat(
                self.tracks[agent], each, infos.get(agent)
            )
            for agent, each in observations.items()
        )

    def _arrive(self, agent: AgentID) -> AgentTrack:
        if agent not in self.env.possible_agents:
            known = ", ".join(map(repr, self.env.possible_agents))
            self._raise(agent, f"agent {agent!r} something", f"only agents of possible_agents: {known}")
        return self.add(agent, self._module_of(agent, self.start))

    def _say_where(self, error: Exception) -> None:
        """Let an error of the environment say which one it is, and in which step."""
        if isinstance(error, EnvContractError):
            error.facts = {**self.progress.facts, **error.facts}
        error.add_note(f"in {self.progress}")

    def _add_rewards(self, rewards: Mapping[AgentID, Any]) -> None:
        for agent, reward in rewards.items():
            track = self.tracks.get(agent)
            number = reward if type(reward) is float else self._number(agent, reward)
            if not math.isfinite(number):
                self._raise(agent, f"agent {agent!r} the reward {number}", "finite rewards")
            if track is None or track.is_done:
                if not number:
                    continue
                if track is not None:
                    self._raise(
                        agent,
                        f"agent {agent!r} the reward {number}, which has ended before",
                        "no rewards of agents that have ended",
                    )
                track = self._arrive(agent)
            track.add_reward(number)

    def _end_if_no_agent_is_left(self, outcome: Outcome) -> None:
        """End the episode whose agents have all ended, though the environment did not say so."""
        terminated, truncated = outcome.terminated, outcome.truncated
        if any(not (terminated.get(a) or truncated.get(a)) for a in outcome.observations):
            self._idle_steps = 0
            return
        ended = [
            a for a, track in self.tracks.items() if track.is_done or terminated.get(a) or truncated.get(a)
        ]
        absent = [agent for agent in self.env.possible_agents if agent not in self.tracks]
        if self.tracks and len(ended) == len(self.tracks):
            if absent:
                gone, missing = (", ".join(map(repr, agents)) for agents in (ended, absent))
                self._raise_nobody_acts(
                    f"no observation though {gone} have ended, and {missing} of possible_agents never had one; "
                    "the episode goes on",
                    "terminateds['__all__'] or truncateds['__all__'] True when the episode is over; if another agent "
                    "comes later, an observation of it in the step in which the last one ends",
                )
            self.terminated = any(terminated.get(a) or self.tracks[a].terminated for a in ended)
            self.truncated = not self.terminated
            return
        self._idle_steps += 1
        if self._idle_steps >= MAX_IDLE_STEPS:
            going_on = ", ".join(repr(agent) for agent in self.tracks if agent not in ended) or "no agent"
            self._raise_nobody_acts(
                f"no observation of any agent that acts in {MAX_IDLE_STEPS} steps, while {going_on} goes on",
                "an observation of each agent that is to act, and terminateds['__all__'] or truncateds['__all__'] True "
                "when the episode is over",
            )

    def _raise_nobody_acts(self, found: str, expected: str) -> NoReturn:
        raise EnvContractError(
            f"{self.progress} gave {found}; expected: {expected}",
            found=found,
            expected=expected,
            **self.progress.facts,
        )

    def _number(self, agent: AgentID, reward: Any) -> float:
        found = np.asarray(reward)
        if found.size != 1 or found.ndim > 1 or found.dtype.kind not in "biuf":
            self._raise(agent, f"agent {agent!r} the reward {describe(reward)}", "a reward is one number")
        return float(found.item())

    def _observe(self, agent: AgentID, observation: Any, outcome: Outcome) -> None:
        track = self.tracks.get(agent)
        if track is None:
            track = self._arrive(agent)
        elif track.is_done:
            self._raise(
                agent,
                f"agent {agent!r} an observation, which has ended before",
                "an agent that has ended does not come back in the same episode",
            )
        terminated, truncated = self._flags(agent, outcome)
        ended = terminated or truncated
        if ended and not track.observations:  # it came and ended at once: there is nothing to learn from
            track.end(terminated=terminated, truncated=truncated)
            return
        info = outcome.infos.get(agent)
        if self.is_done:  # the environment is reset before these are encoded, and may write into them
            observation, info = deepcopy(observation), deepcopy(info)
        self._modules[track.module_id].add(track, observation, info, acts=not ended)
        track.terminated, track.truncated = terminated, truncated

    def _flags(self, agent: AgentID, outcome: Outcome) -> tuple[bool, bool]:
        """Whether an agent terminated, and whether it was truncated: its own flags, or those of the episode."""
        terminated = bool(outcome.terminated.get(agent, False))
        truncated = bool(outcome.truncated.get(agent, False))
        if terminated or truncated:
            return terminated, truncated
        return outcome.is_terminated, outcome.is_truncated

    def _end_without_observation(self, track: AgentTrack, terminated: bool, truncated: bool) -> None:
        if not (terminated or truncated):
            return
        if track.waits_for_outcome and not terminated:
            self._raise(
                track.agent,
                f"agent {track.agent!r} no observation with its truncation",
                "the last observation of an agent that acted and is truncated, whose value is bootstrapped",
            )
        track.end(terminated=terminated, truncated=truncated)

    def _raise(self, agent: AgentID, found: str, expected: str) -> NoReturn:
        raise EnvContractError(
            f"{self.progress} gave {found}; expected: {expected}",
            agent=agent,
            found=found,
            expected=expected,
            **self.progress.facts,
        )


# --- the state of running episodes, and how a resumed run continues them ---


def get_running_state(
    running: Sequence[RunningMultiAgentEpisode], modules: Mapping[ModuleID, ModuleBatches]
) -> dict[str, Any] | None:
    """The state of the running episodes.

    Args:
        running: one episode of each environment.
        modules: that act in them.

    Returns:
        A state for `set_running_state`; None if one cannot be replayed.
    """
    environments = [episode.env.get_state() for episode in running]
    if None in environments:
        return None
    return {
        "episodes": [
            {"id": episode.id_, "environment": state, "agents": _agents_state(episode, modules)}
            for episode, state in zip(running, environments, strict=True)
        ],
        "acting": {
            module_id: [[track.progress.index, _number(running, track)] for track in module.acting]
            for module_id, module in modules.items()
            if module.acting
        },
    }


def _number(running: Sequence[RunningMultiAgentEpisode], track: AgentTrack) -> int:
    return running[track.progress.index].env.possible_agents.index(track.agent)


def _agents_state(
    episode: RunningMultiAgentEpisode, modules: Mapping[ModuleID, ModuleBatches]
) -> list[dict[str, Any]]:
    return [
        {
            "agent": episode.env.possible_agents.index(agent),
            "module": track.module_id,
            "reward": track.reward,
            "return": track.episode_return,
            "t_started": track.t_started,
            "terminated": track.terminated,
            "truncated": track.truncated,
            "state": {name: np.array(value) for name, value in track.state.items()},
            **({} if track.info_metrics is None else {"info_metrics": track.info_metrics.get_state()}),
            **({"carried": modules[track.module_id].get_state(track)} if track.observations else {}),
        }
        for agent, track in episode.tracks.items()
    ]


def set_running_state(
    state: Mapping[str, Any],
    running: list[RunningMultiAgentEpisode],
    modules: ActingModules,
    begin: Callable[[int], RunningMultiAgentEpisode],
) -> None:
    """Continue running episodes: replay them, and begin new ones, with a warning, where they are not repeated.

    Args:
        state: of `get_running_state`, of as many environments.
        running: episodes of all environments that have not begun; new ones are put in the places of those that are not
            repeated.
        modules: that act in them.
        begin: begins a new episode in an environment.
    """
    _add_agents(state, running, modules)
    restarted = set()
    for index, (episode, saved) in enumerate(zip(list(running), state["episodes"], strict=True)):
        if not episode.replay(saved["environment"]):
            warnings.warn(
                f"environment {index} did not repeat its running episode from the same seed and actions: "
                "it begins a new one; this run may differ from one without interruption",
                stacklevel=4,
            )
            running[index] = begin(index)
            restarted.add(index)
    for module_id, module in modules.by_id.items():  # new episodes may have others than the saved ones
        module.encode()
        new = module.acting
        module.join()
        places = [place for place in state["acting"].get(module_id, []) if place[0] not in restarted]
        module.set_acting([*(_track_at(place, running) for place in places), *new])


def _add_agents(
    state: Mapping[str, Any], running: Sequence[RunningMultiAgentEpisode], modules: ActingModules
) -> None:
    """Put the saved agents into the episodes, and what they carry into their modules."""
    carried: dict[ModuleID, list[tuple[AgentTrack, Mapping[str, Any]]]] = {}
    for episode, saved in zip(running, state["episodes"], strict=True):
        for each in saved["agents"]:
            agent = episode.env.possible_agents[each["agent"]]
            module = modules.of_id(each["module"], agent)
            track = episode.add(agent, module)
            _set_track(track, each)
            if "carried" in each:
                carried.setdefault(module.module_id, []).append((track, each["carried"]))
    for module_id, module in modules.by_id.items():
        pairs = carried.get(module_id, [])
        module.set_state([track for track, _ in pairs], [each for _, each in pairs])


def _set_track(track: AgentTrack, saved: Mapping[str, Any]) -> None:
    track.reward, track.episode_return = float(saved["reward"]), float(saved["return"])
    track.t_started = saved.get("t_started")  # older checkpoints have none
    track.terminated, track.truncated = bool(saved["terminated"]), bool(saved["truncated"])
    track.state = {name: np.array(value) for name, value in saved["state"].items()}
    if track.info_metrics is not None:
        track.info_metrics.set_state(saved.get("info_metrics", {}))


def _track_at(place: Sequence[int], running: Sequence[RunningMultiAgentEpisode]) -> AgentTrack:
    episode = running[place[0]]
    return episode.tracks[episode.env.possible_agents[place[1]]]
