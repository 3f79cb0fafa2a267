"""Recorded episodes with their spaces: in memory, and on disk.

On disk they are a checkpoint directory in which every save is a part of the data set. So writing is all or nothing, and
reading is checked, as for any checkpoint. A part has the concatenated columns of its episodes, and their `lengths`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
import numpy as np

from plugrad.batch.forms import STATE_COLUMNS
from plugrad.checkpoint import list_saves, load_checkpoint, save_checkpoint
from plugrad.config.serialize import encode
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError, CheckpointError
from plugrad.observations import is_structured, structured_rows
from plugrad.offline.episode_columns import EpisodeColumns, check_steps, read_space
from plugrad.spaces.fit import NAMES, check_fit, row_order
from plugrad.types import Array


@dataclass(frozen=True, kw_only=True)
class EpisodeData:
    """Recorded episodes with their spaces.

    Attributes:
        episodes: whole ones or chunks. Observations are the environment's (flat, float32 or uint8), actions those of a
            policy (discrete ones counted from 0, others not clipped).
        observation_space: of the episodes.
        action_space: of the episodes.
    """

    episodes: Sequence[SingleAgentEpisode]
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    def read_as(
        self,
        *,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        where: str,
        allow_other_bounds: bool = False,
    ) -> "EpisodeData":
        """The same episodes for other spaces: parts are taken by key, and stand in the order of those spaces.

        Args:
            observation_space: that the episodes are read for.
            action_space: likewise.
            where: their source, for the error.
            allow_other_bounds: read episodes of other bounds too.

        Returns:
            Data of these spaces.

        Raises:
            SpaceMismatchError: the spaces do not fit (`plugrad.spaces`).
            BatchError: the episodes have columns whose order depends on that of the actions.
        """
        orders = {}
        for name, space in zip(NAMES, (observation_space, action_space), strict=True):
            found = getattr(self, name)
            check_fit(
                name,
                space,
                found,
                where=where,
                to_type="Record with the same environment, or rename parts where the data set is made",
                whatever_bounds=allow_other_bounds,
                rows_of="found",
            )
            orders[name] = row_order(name, space, found)
        return EpisodeData(
            episodes=[_reordered(each, where, **orders) for each in self.episodes],
            observation_space=observation_space,
            action_space=action_space,
        )

    def concat(self, other: "EpisodeData", *, where: str, allow_other_bounds: bool = False) -> "EpisodeData":
        """The episodes of both. Those of the other have their parts in the order of this one's spaces.

        Args:
            other: more episodes.
            where: their source, for the error.
            allow_other_bounds: take episodes of other bounds too.

        Returns:
            New data with all episodes.

        Raises:
            SpaceMismatchError: the spaces do not fit.
        """
        other = other.read_as(
            observation_space=self.observation_space,
            action_space=self.action_space,
            where=f"{where} (found) beside the recordings before it (asked)",
            allow_other_bounds=allow_other_bounds,
        )
        return EpisodeData(
            episodes=[*self.episodes, *other.episodes],
            observation_space=self.observation_space,
            action_space=self.action_space,
        )


def _reordered(
    episode: SingleAgentEpisode, where: str, observation_space: Array | None, action_space: Array | None
) -> SingleAgentEpisode:
    """An episode with the numbers of its rows in another order; None: they stay."""
    if action_space is not None:
        for column, values in episode.extra_model_outputs.items():
            if values.ndim > 1 and column.split("/")[0] not in STATE_COLUMNS:
                raise BatchError(
                    f"{where}: {column!r} depends on the order of the parts of the actions, which is another one; "
                    "record without this column, or give the action space the order of the recording",
                    column=column,
                )
        episode = replace(episode, actions=episode.actions[..., action_space])
    if observation_space is None:
        return episode
    return replace(episode, observations=episode.observations[..., observation_space])


# --- on disk ---


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
            fit the spaces (`plugrad.offline.episode_columns`).
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
