"""The learner connector pipeline: from episodes to batches, of rows or of sequences."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.batch import refuse
from plugrad.batch.batch_errors import batch_error
from plugrad.batch.forms import STATE_COLUMNS, state_columns
from plugrad.batch.sequences import pad, piece_lengths, unpad
from plugrad.columns import Columns
from plugrad.config.sampling_settings import tensors_refused
from plugrad.episodes import MASKS, OWN, SingleAgentEpisode, episodes_by_module
from plugrad.errors import ConfigError
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.model_config import max_seq_len
from plugrad.types import Array, ModuleID, Tensor

Piece = Callable[..., dict[ModuleID, dict[str, Array]]]


def add_columns_from_episodes(
    *, learner: LearnerProtocol, batch: Mapping[ModuleID, Mapping[str, Array]], episodes: Sequence[Any]
) -> dict[ModuleID, dict[str, Array]]:
    """Add OBS, ACTIONS, REWARDS, TERMINATEDS, TRUNCATEDS and the recorded model outputs, rows in episode order.

    A module that is not updated gets no columns, if another one is updated: an opponent may have no value function.

    Args:
        learner: decides which modules are updated.
        batch: columns so far, by module.
        episodes: the episodes.

    Returns:
        A new batch, `{module_id: {column: array [B, ...]}}`.
    """
    columns = {module_id: dict(given) for module_id, given in batch.items()}
    by_module = episodes_by_module(episodes)
    updated = [module_id for module_id in by_module if _is_updated(learner, module_id)]
    for module_id in updated or by_module:
        singles = by_module[module_id]
        whole = [episode for episode in singles if len(episode)]
        if whole:
            _check_masks_are_everywhere(module_id, whole)
            columns.setdefault(module_id, {}).update(_columns_of(whole))
    return columns


def _is_updated(learner: LearnerProtocol, module_id: ModuleID) -> bool:
    """Whether a module learns; True for an unknown one, which is refused by name later."""
    if module_id not in learner.module:
        return True
    return module_id in learner.trainable_module_ids and learner.should_module_be_updated(module_id)


def _check_masks_are_everywhere(module_id: ModuleID, episodes: Sequence[SingleAgentEpisode]) -> None:
    """Other columns are dropped if one episode lacks them; a dropped mask would allow every action."""
    for column in MASKS:
        count = sum(column in episode.extra_model_outputs for episode in episodes)
        if count not in (0, len(episodes)):
            refuse(module_id, column, "in all episodes or in none", f"in {count} of {len(episodes)}")


def _columns_of(episodes: Sequence[SingleAgentEpisode]) -> dict[str, Array]:
    columns = {
        Columns.OBS: np.concatenate([episode.observations[:-1] for episode in episodes]),
        Columns.ACTIONS: np.concatenate([episode.actions for episode in episodes]),
        Columns.REWARDS: np.concatenate([episode.rewards for episode in episodes]).astype(np.float32),
        Columns.TERMINATEDS: _ends(episodes, [episode.terminated for episode in episodes]),
        Columns.TRUNCATEDS: _ends(episodes, [episode.truncated for episode in episodes]),
    }
    recorded = set.intersection(*[set(episode.extra_model_outputs) for episode in episodes])
    for column in sorted(recorded.difference(OWN)):
        columns[column] = np.concatenate([episode.extra_model_outputs[column] for episode in episodes])
    return columns


def _ends(episodes: Sequence[SingleAgentEpisode], flags: Sequence[bool]) -> Array:
    """bool [B]: a flag of each episode in the row of its last step, False elsewhere."""
    ends = np.zeros(sum(len(episode) for episode in episodes), bool)
    ends[np.cumsum([len(episode) for episode in episodes]) - 1] = flags
    return ends


def make_pipeline(config: Any, algorithm_pieces: Sequence[Piece], spaces: tuple[Any, Any]) -> list[Piece]:
    """The learner connector pipeline of a config: the user's pieces, then the default ones.

    Args:
        config: the learner's.
        algorithm_pieces: from the hook `get_learner_connectors`.
        spaces: observation and action space, the arguments of `config.learner_connector`.

    Returns:
        The pieces, in order.

    Raises:
        ConfigError: `config.learner_connector` is not called with two spaces, or returns anything but pieces.
    """
    make = config.resolve("learner_connector")
    users = [] if make is None else _users_pieces(make, spaces)
    defaults: list[Piece] = [add_columns_from_episodes, *algorithm_pieces, split_into_sequences]
    return [*users, *(defaults if config.add_default_connectors else [])]


_PIECE = "piece(*, learner, batch, episodes) -> batch"


def _users_pieces(make: Callable[..., Any], spaces: tuple[Any, Any]) -> list[Piece]:
    if not _takes(make, *spaces):
        raise ConfigError(
            f"learner_connector={_name(make)}: give a function of the observation space and the action space that "
            f"returns pieces: learner_connector=lambda observation_space, action_space: [{_PIECE.split('(')[0]}]",
            field="learner_connector",
        )
    returned = make(*spaces)
    is_many = isinstance(returned, Iterable) and not callable(returned)
    pieces = list(returned) if is_many else [returned]
    for piece in pieces:
        if not callable(piece):
            raise ConfigError(
                f"learner_connector returned {piece!r}: return a callable piece or a list of them",
                field="learner_connector",
            )
        if not _takes(piece, learner=None, batch=None, episodes=None):
            raise ConfigError(
                f"learner_connector: {_name(piece)} cannot be called with the keywords learner, batch and episodes: "
                f"write {_PIECE}",
                field="learner_connector",
            )
    return pieces


def _takes(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> bool:
    """Whether a function can be called so; True where it does not say what it takes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*arguments, **keywords)
    except TypeError:
        return False
    return True


def _name(function: Any) -> str:
    """The name of a function or class; of another object that of its class."""
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name


def run_pipeline(
    pieces: Sequence[Piece],
    learner: LearnerProtocol,
    batch: Mapping[ModuleID, Mapping[str, Array]],
    episodes: Sequence[Any],
) -> dict[ModuleID, dict[str, Array]]:
    """Run connector pieces one after the other.

    Args:
        pieces: from `make_pipeline`.
        learner: passed to each piece.
        batch: what the first piece gets.
        episodes: each piece gets one list of them, which it may change in place for the pieces after it.

    Returns:
        What the last piece returns.

    Raises:
        BatchError: a piece returns anything but a batch by module.
    """
    columns = {module_id: dict(given) for module_id, given in batch.items()}
    own = list(episodes)
    for piece in pieces:
        columns = piece(learner=learner, batch=columns, episodes=own)
        _check_returned(piece, columns)
    return columns


def check_connects_steps(learner: LearnerProtocol) -> None:
    """Refuse connector pieces that read episodes alone, before environments of tensors step.

    Args:
        learner: a built learner.

    Raises:
        ConfigError: names the piece.
    """
    for piece in learner.connectors:
        if piece not in _OF_EPISODES and not hasattr(piece, "connect_steps"):
            raise tensors_refused(
                f"connector piece {_name(piece)} reads episodes, and there are steps [T, N, ...]",
                "give it a method connect_steps(*, learner, batch) -> batch, or take "
                'vectorization_mode="vector_entry_point"',
            )


def connect_steps(
    learner: LearnerProtocol, steps: Mapping[ModuleID, Mapping[str, Tensor]]
) -> dict[ModuleID, dict[str, Tensor]]:
    """Run the connector pieces on steps of environments of tensors.

    Args:
        learner: a built learner; `check_connects_steps` accepted it.
        steps: `{module_id: {column: tensor [T, N, ...]}}`, see `plugrad.sampling.tensor_env_runner.Steps`.

    Returns:
        Rows for an update, `{module_id: {column: tensor [T * N, ...]}}`; of a module for which a piece made sequences,
        that is, added `seq_lens`, these.
    """
    batch = {module_id: dict(given) for module_id, given in steps.items()}
    pieces: Sequence[Any] = learner.connectors
    for piece in pieces:
        if piece not in _OF_EPISODES:
            batch = piece.connect_steps(learner=learner, batch=batch)
            _check_returned(piece, batch)
    ops = learner.ops
    return {
        module_id: dict(columns)
        if Columns.SEQ_LENS in columns
        else {
            column: ops.reshape(each, (-1, *ops.shape(each)[2:]))
            for column, each in columns.items()
            if column != Columns.NEXT_OBS
        }
        for module_id, columns in batch.items()
    }


def _check_returned(piece: Piece, returned: Any) -> None:
    if not isinstance(returned, Mapping):
        found = "None" if returned is None else _article(type(returned).__name__)
    elif wrong := {key: each for key, each in returned.items() if not isinstance(each, Mapping)}:
        key, each = next(iter(wrong.items()))
        found = f"a dict with {_article(type(each).__name__)} under {key!r}"
    else:
        return
    expected = "{module_id: {column: array [B, ...]}}"
    raise batch_error(
        f"connector piece {_name(piece)} returned {found}: return the batch, {expected}, also where it is unchanged",
        expected=expected,
        found=found,
    )


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


State = dict[str, Array]


def split_into_sequences(
    *, learner: LearnerProtocol, batch: Mapping[ModuleID, Mapping[str, Array]], episodes: Sequence[Any]
) -> dict[ModuleID, dict[str, Array]]:
    """Give the rows of stateful modules a time dimension: the last of the default connector pieces.

    Each episode is cut into sequences of `max_seq_len` steps, the last of them padded with zeros. Columns become
    [B, T, ...]; SEQ_LENS [B] and LOSS_MASK [B, T] are added, and STATE_IN with the recorded state of each first step.
    Modules without a state, and batches that have SEQ_LENS, stay as they are.

    Args:
        learner: the learner that has the modules.
        batch: rows, by module.
        episodes: the episodes that the rows come from.

    Returns:
        A new batch.
    """
    by_module = episodes_by_module(episodes)
    return {
        module_id: _sequences(module_id, learner.module[module_id], columns, by_module[module_id])
        if _needs_splitting(learner, module_id, columns) and module_id in by_module
        else dict(columns)
        for module_id, columns in batch.items()
    }


def _needs_splitting(learner: LearnerProtocol, module_id: ModuleID, columns: Mapping[str, Array]) -> bool:
    return learner.module[module_id].is_stateful and Columns.SEQ_LENS not in columns


def _sequences(
    module_id: ModuleID, module: Any, columns: Mapping[str, Array], episodes: Sequence[SingleAgentEpisode]
) -> dict[str, Array]:
    longest = max_seq_len(module.model_config)
    whole = [episode for episode in episodes if len(episode)]
    lengths = np.array([each for episode in whole for each in piece_lengths(len(episode), longest)], np.int32)
    cut: dict[str, Array] = {}
    for column, values in columns.items():
        if column.split("/")[0] in STATE_COLUMNS:
            continue
        if len(values) != lengths.sum():
            expected = f"{lengths.sum()} rows like the steps of its episodes"
            refuse(module_id, column, expected, f"{len(values)} rows")
        cut[column] = pad(values, lengths, longest)
    cut[Columns.SEQ_LENS] = lengths
    cut.setdefault(Columns.LOSS_MASK, pad(np.ones(lengths.sum(), bool), lengths, longest))
    return {**cut, **state_columns(Columns.STATE_IN, _first_states(module_id, module, whole, longest))}


def values_of_episodes(
    learner: LearnerProtocol, module_id: ModuleID, episodes: Sequence[SingleAgentEpisode]
) -> Array:
    """State values of all observations of episodes, including the last ones.

    A stateful module computes them on sequences of `max_seq_len` steps that begin with the recorded states. At the end
    of an episode a sequence is one step longer: the last observation is seen in the state after the last step.

    Args:
        learner: a built learner.
        module_id: a module with a value function.
        episodes: E episodes with B steps in all.

    Returns:
        float32 [B + E], in the order of the episodes.
    """
    observations = np.concatenate([episode.observations for episode in episodes])
    module = learner.module[module_id]
    if not module.is_stateful:
        rows: Array = learner.compute_values(observations, module_id=module_id)
        return rows
    longest = max_seq_len(module.model_config)
    lengths = np.array([each for episode in episodes for each in _with_last(len(episode), longest)])
    values: Array = learner.compute_values(
        pad(observations, lengths, longest + 1),
        module_id=module_id,
        state=_first_states(module_id, module, episodes, longest),
    )
    return unpad(values, lengths)


def _with_last(length: int, longest: int) -> list[int]:
    """Lengths of the sequences of an episode, the last one with the last observation."""
    *before, last = piece_lengths(length, longest)
    return [*before, last + 1]


def _first_states(
    module_id: ModuleID, module: Any, episodes: Sequence[SingleAgentEpisode], longest: int
) -> State:
    """The recorded state at the beginning of each sequence, `{name: [sequences, ...]}`."""
    states = [
        state
        for episode, before in zip(episodes, _chunks_before(episodes), strict=True)
        for state in _states_at_starts(module_id, module, episode, before, longest)
    ]
    return {name: np.stack([state[name] for state in states]) for name in states[0]}


def _states_at_starts(
    module_id: ModuleID,
    module: Any,
    episode: SingleAgentEpisode,
    before: SingleAgentEpisode | None,
    longest: int,
) -> Iterator[State]:
    initial = initial_state(module)
    for start in range(0, max(1, len(episode)), longest):
        yield {
            name: _recorded(module_id, episode, before, name, start, first) if len(episode) else first
            for name, first in initial.items()
        }


def _chunks_before(episodes: Sequence[SingleAgentEpisode]) -> list[SingleAgentEpisode | None]:
    """For each chunk the one among `episodes` that it goes on from; None: not there, or it begins its episode.

    A chunk goes on from one with its `id_` that ends in the step and the observation with which it begins. Where nobody
    said the steps (`t_started` None), the one before it in the list is meant.
    """
    by_end: dict[tuple[str, int | None], list[SingleAgentEpisode]] = {}
    for each in episodes:
        if each.id_ is not None and each.t_started is not None and len(each) and not each.is_done:
            by_end.setdefault((each.id_, each.t_started + len(each)), []).append(each)
    found = []
    for each in episodes:
        before = by_end.get((each.id_, each.t_started), []) if each.id_ is not None else []
        first = each.observations[0]
        found.append(next((b for b in before if np.array_equal(b.observations[-1], first)), None))
        if each.id_ is not None and each.t_started is None and len(each) and not each.is_done:
            by_end[each.id_, None] = [each]
    return found


def _recorded(
    module_id: ModuleID,
    episode: SingleAgentEpisode,
    before: SingleAgentEpisode | None,
    name: str,
    step: int,
    initial: Array,
) -> Array:
    """The state in which a step was taken; without STATE_IN, STATE_OUT of the step before it."""
    recorded = episode.extra_model_outputs
    state_in, state_out = f"{Columns.STATE_IN}/{name}", f"{Columns.STATE_OUT}/{name}"
    state: Array
    if state_in in recorded:
        state = recorded[state_in][step]
        return state
    if state_out in recorded:
        if step:
            state = recorded[state_out][step - 1]
            return state
        if before is not None and state_out in before.extra_model_outputs:
            state = before.extra_model_outputs[state_out][-1]
            return state
        if not episode.t_started:
            return initial
        refuse(
            module_id,
            Columns.STATE_IN,
            f"{name!r} in {Columns.STATE_IN!r} of extra_model_outputs, the state of each step, or in the same update "
            "the chunk before this one, with the same id_",
            f"an episode of id_ {episode.id_!r} with {Columns.STATE_OUT!r} alone and t_started={episode.t_started}: "
            "the state in which its first step was taken is unknown",
        )
    refuse(
        module_id,
        Columns.STATE_IN,
        f"extra_model_outputs with {name!r} in {Columns.STATE_IN!r}, the state of each step, or in "
        f"{Columns.STATE_OUT!r}, as compute_actions returns it",
        f"only {', '.join(sorted(recorded)) or 'none'}",
    )


def initial_state(module: Any) -> State:
    """A module's state at the start of an episode as numpy arrays, even if the module gives tensors."""
    return {name: np.asarray(value) for name, value in module.get_initial_state().items()}


class PiecePerModule:
    """A connector piece that makes one for each module, from the settings of that module.

    So `algorithm_config_overrides_per_module` holds in it as in the loss.

    Args:
        make: `(config) -> piece`: the piece of a module with this config; None: it needs none.
    """

    def __init__(self, make: Callable[[Any], Piece | None]) -> None:
        self._make = make

    def __call__(
        self,
        *,
        learner: LearnerProtocol,
        batch: Mapping[ModuleID, dict[str, Array]],
        episodes: Sequence[Any],
    ) -> dict[ModuleID, dict[str, Array]]:
        """Return `batch` as each module's piece returns the part of its module."""
        own = episodes_by_module(episodes)
        found = dict(batch)
        for module_id, columns in batch.items():
            piece = self._make(learner.config.get_config_for_module(module_id))
            if piece is not None:
                part = {module_id: columns}
                found |= piece(learner=learner, batch=part, episodes=own.get(module_id, []))
        return found

    def connect_steps(
        self, *, learner: LearnerProtocol, batch: Mapping[ModuleID, dict[str, Tensor]]
    ) -> dict[ModuleID, dict[str, Tensor]]:
        """Return steps of tensors as each module's piece returns them.

        Args:
            learner: has the modules.
            batch: `{module_id: {column: [T, N, ...]}}`.

        Returns:
            The same form.
        """
        found = dict(batch)
        for module_id, columns in batch.items():
            piece: Any = self._make(learner.config.get_config_for_module(module_id))
            if piece is not None:
                found |= piece.connect_steps(learner=learner, batch={module_id: columns})
        return found


_OF_EPISODES = (add_columns_from_episodes, split_into_sequences)
"""The default pieces that steps of tensors do not need: these are columns already, and modules have no state."""
