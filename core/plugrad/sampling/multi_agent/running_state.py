"""The state of running multi-agent episodes, and how a resumed run continues them."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.sampling.multi_agent.acting_modules import ActingModules
from plugrad.sampling.multi_agent.agent_track import AgentTrack
from plugrad.sampling.multi_agent.module_batches import ModuleBatches
from plugrad.sampling.multi_agent.running_episode import RunningMultiAgentEpisode
from plugrad.types import ModuleID


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
