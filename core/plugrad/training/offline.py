"""`OfflineTraining`: converts recorded episodes to columns once; each update learns from some of the rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from plugrad.batch.forms import STATE_COLUMNS
from plugrad.columns import Columns
from plugrad.episodes import Episode, SingleAgentEpisode
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.module_spec import specs_of
from plugrad.observations import model_space
from plugrad.offline import EpisodeData, load_episodes
from plugrad.rng_streams import stream
from plugrad.training.training import ModuleResults, Training
from plugrad.types import Array, ModuleID


class OfflineTraining(Training):
    """Training from recorded episodes; the config is a `plugrad.OfflineConfig`.

    Each step takes the next `train_batch_size` rows of every module, in an order that is drawn again for each pass. For
    a recurrent module it takes sequences that have this many steps on average. If no state was recorded, each sequence
    of `max_seq_len` steps begins in the initial state: the zero start state of Kapturowski et al. 2019 ("Recurrent
    Experience Replay in Distributed Reinforcement Learning", ICLR), section 3.

    Args:
        algorithm: see `Training`; `config.input_` names the episodes.

    Raises:
        SpaceMismatchError: their spaces do not fit the modules' spaces.
    """

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        episodes = load_in_spaces_of(self.config, "input_").episodes
        if self.config.normalize_observations:
            episodes = algorithm.normalize_recorded(rename_to_only_module(specs_of(self.config), episodes))
        self._columns: dict[ModuleID, dict[str, Array]] = algorithm.learner_group.foreach_learner(
            _make_columns, episodes
        )[0]
        self._rows = {
            module_id: ShuffledRows(_num_rows(columns), self.config.seed, module_id)
            for module_id, columns in self._columns.items()
        }

    @property
    def num_recorded_steps(self) -> dict[ModuleID, int]:
        """The number of recorded steps of each module."""
        return {module_id: _num_steps(columns) for module_id, columns in self._columns.items()}

    def training_step(self) -> ModuleResults:
        """See `Training`."""
        batch = {}
        for module_id, columns in self._columns.items():
            count = ceil(self.config.train_batch_size * _num_rows(columns) / _num_steps(columns))
            chosen = self._rows[module_id].take(count)
            batch[module_id] = {column: values[chosen] for column, values in columns.items()}
        results: ModuleResults = self.algorithm.update(batch)
        return results

    @property
    def num_env_steps(self) -> int:
        """Recorded steps that were trained on, including repetitions; sequences count with their mean length."""
        return max(
            rows.taken * _num_steps(self._columns[module_id]) // _num_rows(self._columns[module_id])
            for module_id, rows in self._rows.items()
        )

    def get_state(self) -> dict[str, Any]:
        """The number of rows that each module has taken; the orders follow from the seed."""
        return {"rows_taken": {module_id: rows.taken for module_id, rows in self._rows.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Training`."""
        for module_id, taken in state["rows_taken"].items():
            self._rows[module_id].taken = taken


def _make_columns(learner: LearnerProtocol, episodes: Sequence[Episode]) -> dict[ModuleID, dict[str, Array]]:
    """The columns that the learner's connectors make from episodes."""
    renamed = rename_to_only_module(learner.module, episodes)
    return learner.run_connectors([_with_states(learner, episode) for episode in renamed])


def _with_states(learner: LearnerProtocol, episode: Episode) -> Episode:
    """Add the initial state to each step of an episode if a recurrent module finds no recorded states."""
    if not isinstance(episode, SingleAgentEpisode) or episode.module_id not in learner.module:
        return episode
    recorded = episode.extra_model_outputs
    if any(column.split("/")[0] in STATE_COLUMNS for column in recorded):
        return episode
    initial = learner.module[episode.module_id].get_initial_state()
    states = {
        f"{Columns.STATE_IN}/{name}": np.broadcast_to(np.asarray(value), (len(episode), *np.shape(value)))
        for name, value in initial.items()
    }
    return replace(episode, extra_model_outputs={**recorded, **states}) if states else episode


def _num_rows(columns: Mapping[str, Array]) -> int:
    """The number of rows: steps, or sequences."""
    return len(next(iter(columns.values())))


def _num_steps(columns: Mapping[str, Array]) -> int:
    return int(columns[Columns.SEQ_LENS].sum()) if Columns.SEQ_LENS in columns else _num_rows(columns)


def rename_to_only_module(module_ids: Collection[ModuleID], episodes: Sequence[Episode]) -> Sequence[Episode]:
    """Let the only module learn from episodes of one module, whatever its id was when they were recorded.

    Args:
        module_ids: of the learner.
        episodes: recorded ones.

    Returns:
        The episodes; copies with another module id if need be.
    """
    recorded = {episode.module_id for episode in episodes if isinstance(episode, SingleAgentEpisode)}
    if len(module_ids) > 1 or len(recorded) != 1 or recorded == set(module_ids):
        return episodes
    (module_id,) = module_ids
    return [
        replace(episode, module_id=module_id) if isinstance(episode, SingleAgentEpisode) else episode
        for episode in episodes
    ]


def load_in_spaces_of(config: Any, setting: str) -> EpisodeData:
    """Load recorded episodes, as rows of the config's spaces; of their own where the config has none.

    Args:
        config: the settings.
        setting: the one that names the episodes.

    Returns:
        The episodes.

    Raises:
        SpaceMismatchError: their spaces do not fit.
        Exception: see `load_episodes`.
    """
    source = getattr(config, setting)
    data = load_episodes(source, allow_other_bounds=config.allow_other_bounds)
    observations = config.observation_space
    return data.read_as(
        observation_space=data.observation_space
        if observations is None
        else model_space(observations, normalized=config.normalize_observations),
        action_space=data.action_space if config.action_space is None else config.action_space,
        where=f"{setting}={source!r} (found) for the settings' environment (asked)",
        allow_other_bounds=config.allow_other_bounds,
    )


class ShuffledRows:
    """Row numbers in passes. The order of a pass depends only on the seed, the name and the number of the pass.

    Args:
        num_rows: the number of rows of the data set, at least 1.
        seed: the seed of all orders.
        name: distinguishes data sets with the same seed.

    Attributes:
        taken: how many row numbers were taken; this is the whole state.
    """

    def __init__(self, num_rows: int, seed: int, name: str) -> None:
        self._num_rows = num_rows
        self._seed = seed
        self._name = name
        self.taken = 0

    def take(self, count: int) -> Array:
        """The next `count` row numbers, int64."""
        first, begin = divmod(self.taken, self._num_rows)
        passes = ceil((begin + count) / self._num_rows)
        self.taken += count
        orders = [self._order(each) for each in range(first, first + passes)]
        return np.concatenate(orders)[begin : begin + count]

    def _order(self, number: int) -> Array:
        return stream(self._seed, "rows", self._name, str(number)).permutation(self._num_rows)
