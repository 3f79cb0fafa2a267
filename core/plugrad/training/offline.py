"""`OfflineTraining`: recorded episodes are made into columns once; each update learns from some of their rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym

from plugrad.episodes import Episode, SingleAgentEpisode
from plugrad.errors import ConfigError
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.observations import is_structured, row_shape
from plugrad.offline import EpisodeData, load_episodes
from plugrad.training.shuffled_rows import ShuffledRows
from plugrad.training.training import ModuleResults, Training
from plugrad.types import Array, ModuleID


class OfflineTraining(Training):
    """Training from recorded episodes, whose config is a `plugrad.OfflineConfig`.

    Each step takes the next `train_batch_size` rows of every module, in an order drawn anew for each pass.

    Args:
        algorithm: see `Training`; `config.input_` names the episodes.

    Raises:
        ConfigError: they are of other spaces than the modules, or a module is recurrent.
    """

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        data = load_episodes(self.config.input_)
        _check_spaces(data, self.config)
        self._columns: dict[ModuleID, dict[str, Array]] = algorithm.learner_group.foreach_learner(
            _make_columns, data.episodes
        )[0]
        self._rows = {
            module_id: ShuffledRows(steps, self.config.seed, module_id)
            for module_id, steps in self.num_recorded_steps.items()
        }

    @property
    def num_recorded_steps(self) -> dict[ModuleID, int]:
        """The number of recorded steps of each module."""
        return {module_id: len(next(iter(columns.values()))) for module_id, columns in self._columns.items()}

    def training_step(self) -> ModuleResults:
        """See `Training`."""
        chosen = {
            module_id: rows.take(self.config.train_batch_size) for module_id, rows in self._rows.items()
        }
        batch = {
            module_id: {column: values[chosen[module_id]] for column, values in columns.items()}
            for module_id, columns in self._columns.items()
        }
        results: ModuleResults = self.algorithm.update(batch)
        return results

    @property
    def num_env_steps(self) -> int:
        """Recorded steps that were learned from, repetitions included."""
        return max(rows.taken for rows in self._rows.values())

    def get_state(self) -> dict[str, Any]:
        """How many rows each module has taken; the orders follow from the seed."""
        return {"rows_taken": {module_id: rows.taken for module_id, rows in self._rows.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Training`."""
        for module_id, taken in state["rows_taken"].items():
            self._rows[module_id].taken = taken


def _make_columns(learner: LearnerProtocol, episodes: Sequence[Episode]) -> dict[ModuleID, dict[str, Array]]:
    """The columns that the learner's connectors make of episodes.

    Raises:
        ConfigError: a module carries a state, so that its rows cannot be taken one by one.
    """
    for module_id, module in learner.module.items():
        if module.is_stateful:
            raise ConfigError(
                f"module {module_id!r} carries a state (use_lstm), and recorded steps are taken one by one: give a "
                "learner whole episodes with learner.update(episodes=...)"
            )
    return learner.run_connectors(_rename_to_only_module(learner, episodes))


def _rename_to_only_module(learner: LearnerProtocol, episodes: Sequence[Episode]) -> Sequence[Episode]:
    """The only module learns from episodes of one module, whatever it was called when they were recorded."""
    recorded = {episode.module_id for episode in episodes if isinstance(episode, SingleAgentEpisode)}
    if len(learner.module) > 1 or len(recorded) != 1 or recorded == set(learner.module):
        return episodes
    (module_id,) = learner.module
    return [
        replace(episode, module_id=module_id) if isinstance(episode, SingleAgentEpisode) else episode
        for episode in episodes
    ]


def _check_spaces(data: EpisodeData, config: Any) -> None:
    for name in ("observation_space", "action_space"):
        expected, found = getattr(config, name), getattr(data, name)
        if expected is not None and _comparable(expected) != _comparable(found):
            raise ConfigError(f"input_: expected episodes of the {name} {expected}, found {found}")


def _comparable(space: gym.Space[Any]) -> tuple[Any, ...]:
    """What must agree: bounds may differ, and do between an environment and a recording of it."""
    if is_structured(space) or isinstance(space, gym.spaces.Box):
        return ("rows", row_shape(space))
    return type(space), space.shape, getattr(space, "n", None), str(getattr(space, "nvec", None))
