"""Episodes on disk: a checkpoint directory in which every save is a part of the data set.

So writing is all or nothing and reading is checked, as for any checkpoint. Columns of all episodes of a part lie one
behind the other; `lengths` cuts them. Knows the checkpoint package; nothing of who made the episodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
import numpy as np

from plugrad.checkpoint import Checkpoint, list_saves, load_checkpoint, save_checkpoint
from plugrad.config.serialize import decode, encode
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError, CheckpointError
from plugrad.offline.episode_data import EpisodeData
from plugrad.types import Array

KIND: Final = "episodes"
ALL: Final = 10**9
"""Saves to keep: every one is a part of the data set."""


def save_episodes(
    path: str | Path,
    episodes: Sequence[SingleAgentEpisode],
    *,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    about: Mapping[str, Any] | None = None,
) -> str:
    """Add a part with these episodes to the data set in `path`, which is made if it is missing.

    Args:
        path: a directory.
        episodes: of one module, all with the same columns.
        observation_space: of one observation.
        action_space: of one action.
        about: more plain data about them, such as who recorded them.

    Returns:
        `path`.

    Raises:
        BatchError: no episodes, episodes of several modules, or columns that not all of them have.
        CheckpointError: the disk refused; the parts that are there stay as they were.
    """
    state = _state(episodes)
    metadata = {
        "kind": KIND,
        "observation_space": encode(observation_space, "observation_space"),
        "action_space": encode(action_space, "action_space"),
        "num_episodes": len(episodes),
        "num_steps": sum(map(len, episodes)),
        **(about or {}),
    }
    return str(save_checkpoint(path, state, metadata=metadata, keep=ALL))


def read_episodes(path: str | Path) -> EpisodeData:
    """All parts of the data set in `path`, in the order in which they were written.

    Raises:
        CheckpointError: it is no data set of episodes, or damaged.
        BatchError: its parts are of different spaces, or its columns do not fit its lengths.
    """
    parts = list_saves(path)
    if not parts:
        raise CheckpointError(
            f"{path} has no recorded episodes in it: write some with plugrad record RUN -o {path}"
        )
    return reduce(lambda one, other: one.joined(other, where=str(path)), map(_read_part, parts))


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
    return EpisodeData(
        episodes=list(_episodes(part)),
        observation_space=decode(part.metadata["observation_space"]),
        action_space=decode(part.metadata["action_space"]),
    )


def _episodes(part: Checkpoint) -> Iterator[SingleAgentEpisode]:
    state = part.state
    lengths: Array = state["lengths"]
    columns = {name: _cut(part, name, state[name], lengths) for name in ("actions", "rewards")}
    extra = {name: _cut(part, name, values, lengths) for name, values in state["extra_model_outputs"].items()}
    observations = _cut(part, "observations", state["observations"], lengths + 1)
    for n in range(len(lengths)):
        yield SingleAgentEpisode(
            observations=observations[n],
            actions=columns["actions"][n],
            rewards=columns["rewards"][n],
            terminated=state["terminated"][n],
            truncated=state["truncated"][n],
            extra_model_outputs={name: values[n] for name, values in extra.items()},
            module_id=state["module_id"],
        )


def _cut(part: Checkpoint, name: str, column: Array, lengths: Array) -> list[Array]:
    if len(column) != lengths.sum():
        raise BatchError(
            f"{part.path}: expected {lengths.sum()} rows of {name!r} by its lengths, found {len(column)}",
            column=name,
            expected=int(lengths.sum()),
            found=len(column),
        )
    return np.split(column, np.cumsum(lengths)[:-1])
