"""RLlib's pieces of a learner connector as pieces here: they see episodes by RLlib's methods, and change them.

    config.learners(learner_connector=learner_pieces(lambda observation_space, action_space: MyCuriosity()))

What a piece sets in an episode, such as other rewards, is what is learned from. Columns are added to the
batch by `add_n_batch_items`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.episodes import MultiAgentEpisode, SingleAgentEpisode
from plugrad.errors import ConfigError
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.types import AgentID, Array, ModuleID
from plugrad_rllib.connectors import ConnectorV2
from plugrad_rllib.metrics_logger import MetricsLogger

Batch = dict[ModuleID, dict[str, Array]]
Indices = int | slice | Sequence[int] | None


def learner_pieces(make: Callable[..., Any]) -> Callable[[Any, Any], list[Any]]:
    """The function that `learners(learner_connector=...)` takes, from one that makes pieces of RLlib.

    Args:
        make: called with the observation space and the action space; returns a `ConnectorV2`, a list of them, or
            pieces of plugrad, which stay as they are.

    Returns:
        A function of both spaces, which returns pieces of plugrad.
    """
    return partial(_made, make)


def _made(make: Callable[..., Any], observation_space: Any, action_space: Any) -> list[Any]:
    made = make(observation_space, action_space)
    pieces = list(made) if isinstance(made, list | tuple) else [made]
    return [LearnerPiece(each) if isinstance(each, ConnectorV2) else each for each in pieces]


class LearnerPiece:
    """A piece of RLlib as one that a learner of plugrad calls.

    Args:
        piece: the piece.
    """

    def __init__(self, piece: ConnectorV2) -> None:
        self.piece = piece

    def __call__(self, *, learner: LearnerProtocol, batch: Mapping[str, Any], episodes: list[Any]) -> Batch:
        """Call the piece, and put what it set into the episodes and the batch.

        Args:
            learner: whose modules are updated.
            batch: columns so far.
            episodes: of plugrad; those that the piece changed are replaced.

        Returns:
            The batch, with the columns that the piece added.

        Raises:
            ConfigError: the piece returned columns that it did not add by `add_n_batch_items`.
        """
        seen = [
            LearnerEpisode(part, agent, number)
            for number, whole in enumerate(episodes)
            for agent, part in _parts(whole)
        ]
        given: dict[str, Any] = {}
        found = self.piece(
            rl_module=learner.module,
            batch=given,
            episodes=seen,
            explore=None,
            shared_data={},
            metrics=MetricsLogger(),
        )
        if found:
            raise ConfigError(
                f"{type(self.piece).__name__} returned a batch with {', '.join(map(str, found))}: add columns by "
                "self.add_n_batch_items(batch, column, items_to_add, num_items, single_agent_episode)"
            )
        for each in seen:
            episodes[each.number] = _with_part(episodes[each.number], each)
        return _with_columns(batch, seen)


class LearnerEpisode:
    """What RLlib's `SingleAgentEpisode` says of a sampled episode, and lets pieces set.

    Its other attributes are those of plugrad's `SingleAgentEpisode`, such as `module_id` and `is_terminated`.

    Args:
        episode: the episode, or the part of one agent.
        agent_id: the agent, where there are many.
        number: the place of the whole episode among those that are learned from.

    Attributes:
        agent_id: see the argument.
        number: see the argument.
        columns: `{column: array [T, ...]}` of `add_n_batch_items`.
        custom_data: for pieces, which read and write it; the next piece gets another one.
        agent_to_module: empty: it is an episode of one agent.
    """

    def __init__(self, episode: SingleAgentEpisode, agent_id: AgentID | None, number: int) -> None:
        self._episode, self.agent_id, self.number = episode, agent_id, number
        self._set: dict[str, Array] = {}
        self.columns: dict[str, Array] = {}
        self.custom_data: dict[str, Any] = {}
        self.agent_to_module: dict[AgentID, ModuleID] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._episode, name)

    def __len__(self) -> int:
        """Steps, T."""
        return len(self._episode)

    def get_observations(self, indices: Indices = None) -> Any:
        """Observations, as rows: T + 1 of them.

        Args:
            indices: which ones; None: all.
        """
        return _chosen(self._of("observations"), indices)

    def get_actions(self, indices: Indices = None) -> Any:
        """Actions, T of them; see `get_observations`."""
        return _chosen(self._of("actions"), indices)

    def get_rewards(self, indices: Indices = None) -> Any:
        """Rewards, T of them; see `get_observations`."""
        return _chosen(self._of("rewards"), indices)

    def set_observations(self, *, new_data: Any, at_indices: Indices = None) -> None:
        """Replace observations.

        Args:
            new_data: the new ones.
            at_indices: which ones; None: all.
        """
        self._replace("observations", new_data, at_indices)

    def set_rewards(self, *, new_data: Any, at_indices: Indices = None) -> None:
        """Replace rewards; see `set_observations`."""
        self._replace("rewards", new_data, at_indices)

    def add_items(self, column: str, items: Sequence[Any]) -> None:
        """Add a column of the batch.

        Args:
            column: its name. "rewards" are those of the episode.
            items: one for each step.

        Raises:
            ConfigError: there is not one item for each step.
        """
        if len(items) != len(self):
            raise ConfigError(
                f"add_n_batch_items({column!r}): {len(items)} items for an episode of {len(self)} steps; expected: "
                "one for each step"
            )
        if column == Columns.REWARDS:
            self.set_rewards(new_data=np.asarray(items))
        else:
            self.columns[column] = np.asarray(items)

    def changed(self) -> SingleAgentEpisode:
        """The episode with what was set."""
        if not self._set:
            return self._episode
        return replace(self._episode, observations=self._of("observations"), rewards=self._of("rewards"))

    def _of(self, name: str) -> Array:
        found: Array = self._set[name] if name in self._set else getattr(self._episode, name)
        return found

    def _replace(self, name: str, new: Any, indices: Indices) -> None:
        if name not in self._set:  # the arrays may be those of a caller
            self._set[name] = np.array(getattr(self._episode, name))
        self._set[name][slice(None) if indices is None else indices] = new


def _chosen(values: Array, indices: Indices) -> Any:
    return values if indices is None else values[indices]


def _parts(
    whole: SingleAgentEpisode | MultiAgentEpisode,
) -> Iterable[tuple[AgentID | None, SingleAgentEpisode]]:
    return whole.agent_episodes.items() if isinstance(whole, MultiAgentEpisode) else [(None, whole)]


def _with_part(whole: Any, part: LearnerEpisode) -> Any:
    if part.agent_id is None:
        return part.changed()
    return replace(whole, agent_episodes={**whole.agent_episodes, part.agent_id: part.changed()})


def _with_columns(batch: Mapping[str, Any], seen: Iterable[LearnerEpisode]) -> Batch:
    added: dict[ModuleID, dict[str, list[Array]]] = {}
    for each in seen:
        for column, values in each.columns.items():
            added.setdefault(each.module_id, {}).setdefault(column, []).append(values)
    columns = {module_id: dict(given) for module_id, given in batch.items()}
    for module_id, lists in added.items():
        columns.setdefault(module_id, {}).update(
            {column: np.concatenate(values) for column, values in lists.items()}
        )
    return columns
