"""Convert observations in the structure of a Dict or Tuple space, as users give them to a learner, to rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from plugrad.batch import env_steps_of, refuse
from plugrad.columns import Columns
from plugrad.episodes import Episode, MultiAgentEpisode
from plugrad.errors import BatchError
from plugrad.observations import is_structured, structured_rows
from plugrad.types import DEFAULT_MODULE_ID, ModuleID

EpisodeT = TypeVar("EpisodeT", bound=Episode)

_COLUMNS = (Columns.OBS, Columns.NEXT_OBS)


def rows_of(module_id: ModuleID, module: Any, obs: Any, column: str = Columns.OBS) -> Any:
    """Convert observations in the structure of a module's space to rows; anything else is returned unchanged.

    Args:
        module_id: the module's id, for the error.
        module: the RLModule.
        obs: a dict or tuple of arrays [B, ...] or [B, T, ...]; an array of observations, dtype object; or rows.
        column: the column's name, for the error.

    Returns:
        float32 or uint8 [B, numbers] or [B, T, numbers].

    Raises:
        BatchError: the observations do not fit the space.
    """
    space = module.observation_space
    one_by_one = isinstance(obs, np.ndarray) and obs.dtype.kind == "O" and is_structured(space)
    if not one_by_one and not isinstance(obs, Mapping | tuple):
        return obs
    if not is_structured(space):
        found = (
            f"{type(obs).__name__} of {', '.join(map(str, obs)) if isinstance(obs, Mapping) else len(obs)}"
        )
        refuse(module_id, column, f"an array [B, ...] of rows of {space}", found)
    try:
        return structured_rows(space, obs)
    except BatchError as error:
        raise BatchError(
            f"module {module_id!r}, column {column!r}: {error}",
            **{**error.facts, "module_id": module_id, "column": column},
        ) from error


def batch_in_rows(batch: Any, modules: Mapping[ModuleID, Any]) -> Any:
    """Convert OBS and NEXT_OBS of a batch, in any of its forms, to rows.

    Args:
        batch: the user's batch; its form is not checked here.
        modules: the learner's modules, of which some have a Dict or Tuple space.

    Returns:
        `{module_id: columns}`, or columns; what is no batch is returned as it is.

    Raises:
        BatchError: observations do not fit the space of their module.
    """
    given = getattr(batch, "policy_batches", batch)
    if not isinstance(given, Mapping):
        return batch
    env_steps_of(batch)
    if any(column in given and column not in modules for column in _COLUMNS):
        return _columns_in_rows(DEFAULT_MODULE_ID, given, modules)
    return {
        module_id: _columns_in_rows(module_id, each, modules) if isinstance(each, Mapping) else each
        for module_id, each in given.items()
    }


def _columns_in_rows(module_id: ModuleID, columns: Mapping[str, Any], modules: Mapping[ModuleID, Any]) -> Any:
    if module_id not in modules:
        return columns
    module = modules[module_id]
    return {
        name: rows_of(module_id, module, each, name) if name in _COLUMNS else each
        for name, each in columns.items()
    }


def episodes_in_rows(episodes: Sequence[EpisodeT], modules: Mapping[ModuleID, Any]) -> Sequence[EpisodeT]:
    """Convert the observations of episodes to rows.

    Args:
        episodes: the user's episodes.
        modules: the learner's modules.

    Returns:
        The episodes; those with structured observations are copies.

    Raises:
        BatchError: observations do not fit the space of their module.
    """
    if not any(is_structured(module.observation_space) for module in modules.values()):
        return episodes
    return [_episode_in_rows(each, modules) for each in episodes]


def _episode_in_rows(episode: Any, modules: Mapping[ModuleID, Any]) -> Any:
    if isinstance(episode, MultiAgentEpisode):
        agents = {
            agent_id: _single_in_rows(each, episode.module_for(agent_id), modules)
            for agent_id, each in episode.agent_episodes.items()
        }
        return replace(episode, agent_episodes=agents)
    return _single_in_rows(episode, episode.module_id, modules)


def _single_in_rows(episode: Any, module_id: ModuleID, modules: Mapping[ModuleID, Any]) -> Any:
    if module_id not in modules:
        return episode
    rows = rows_of(module_id, modules[module_id], episode.observations)
    return episode if rows is episode.observations else replace(episode, observations=rows)
