"""Episodes on disk: a checkpoint directory in which every save is a part of the data set.

So writing is all or nothing, and reading is checked, as for any checkpoint. A part has the concatenated columns of its
episodes, and their `lengths`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
import numpy as np

from plugrad.checkpoint import list_saves, load_checkpoint, save_checkpoint
from plugrad.config.serialize import encode
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError, CheckpointError
from plugrad.observations import is_structured, structured_rows
from plugrad.offline.episode_columns import EpisodeColumns, read_space
from plugrad.offline.episode_data import EpisodeData
from plugrad.offline.validation import check_steps

KIND: Final = "episodes"
ALL: Final = 10**9
"""Number of saves to keep: no part of the data set is ever removed."""


def save_episodes(
    path: str | Path,
    episodes: Sequence[SingleAgentEpisode],
    *,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    about: Mapping[str, Any] | None = None,
) -> str:
    """Write episodes as one more part of the data set in a directory.

    Args:
        path: the directory, made if it is missing.
        episodes: of one module, all with the same columns. Observations of a Dict or Tuple space have its structure,
            or are rows.
        observation_space: of the episodes.
        action_space: of the episodes; discrete actions are counted from 0.
        about: further metadata, plain data such as who recorded them.

    Returns:
        `path`.

    Raises:
        BatchError: there are no episodes, they are of several modules or have different columns, or a column does not
            fit the spaces (`plugrad.offline.validation`).
        CheckpointError: the disk refused; earlier parts are as they were.
    """
    state = _state([_in_rows(each, observation_space) for each in episodes])
    found = EpisodeColumns("the episodes", state)
    check_steps(
        "the episodes",
        found.steps,
        num_observations=found.num_observations,
        lengths=found.lengths,
        observation_space=observation_space,
        action_space=action_space,
    )
    metadata = {
        "kind": KIND,
        "observation_space": encode(observation_space, "observation_space"),
        "action_space": encode(action_space, "action_space"),
        "num_episodes": len(episodes),
        "num_steps": sum(map(len, episodes)),
        **(about or {}),
    }
    return str(save_checkpoint(path, state, metadata=metadata, keep=ALL))


def _in_rows(episode: SingleAgentEpisode, space: gym.Space[Any]) -> SingleAgentEpisode:
    seen: Any = episode.observations
    if not is_structured(space) or (isinstance(seen, np.ndarray) and seen.dtype.kind != "O"):
        return episode
    return replace(episode, observations=structured_rows(space, seen))


def read_episodes(path: str | Path) -> EpisodeData:
    """Read all parts of the data set in a directory, in the order in which they were written.

    Raises:
        CheckpointError: it is no data set of episodes, or damaged.
        BatchError: its parts have different spaces, or a column does not fit lengths or spaces.
    """
    parts = list_saves(path) if Path(path).is_dir() else []
    if not parts:
        what = "has no recorded episodes in it" if Path(path).exists() else "does not exist"
        raise CheckpointError(f"{path} {what}: write recorded episodes with plugrad record RUN -o {path}")
    return reduce(lambda one, other: one.concat(other, where=str(path)), map(_read_part, parts))


def _state(episodes: Sequence[SingleAgentEpisode]) -> dict[str, Any]:
    if not episodes:
        raise BatchError("there are no episodes to save")
    for what, values in (
        ("module", {episode.module_id for episode in episodes}),
        ("set of columns", {tuple(sorted(episode.extra_model_outputs)) for episode in episodes}),
    ):
        if len(values) > 1:
            raise BatchError(f"episodes of one part have one {what}, found {sorted(values)}")
    return {
        "observations": np.concatenate([episode.observations for episode in episodes]),
        "actions": np.concatenate([episode.actions for episode in episodes]),
        "rewards": np.concatenate([episode.rewards for episode in episodes]).astype(np.float32),
        "lengths": np.array([len(episode) for episode in episodes], np.int64),
        "terminated": np.array([episode.terminated for episode in episodes]),
        "truncated": np.array([episode.truncated for episode in episodes]),
        "extra_model_outputs": {
            column: np.concatenate([episode.extra_model_outputs[column] for episode in episodes])
            for column in sorted(episodes[0].extra_model_outputs)
        },
        "module_id": episodes[0].module_id,
    }


def _read_part(path: Path) -> EpisodeData:
    part = load_checkpoint(path)
    if part.metadata.get("kind") != KIND:
        raise CheckpointError(f"{path} holds {part.metadata.get('kind')!r}, not {KIND!r}")
    found = EpisodeColumns(str(path), part.state)
    spaces = {
        "observation_space": read_space(
            str(path), "observation_space", part.metadata, found.steps["observations"]
        ),
        "action_space": read_space(str(path), "action_space", part.metadata, found.steps["actions"]),
    }
    check_steps(
        str(path), found.steps, num_observations=found.num_observations, lengths=found.lengths, **spaces
    )
    return EpisodeData(episodes=list(found.episodes()), **spaces)
