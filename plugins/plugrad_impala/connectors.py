"""The connector piece of V-trace: sequences, and the observation after each of them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from plugrad import Columns, LearnerProtocol
from plugrad.batch import pad, piece_lengths
from plugrad.episodes import Episode, SingleAgentEpisode, episodes_by_module
from plugrad.learner import split_into_sequences
from plugrad.types import Array, ModuleID, Tensor

ModuleColumns = dict[ModuleID, dict[str, Array]]

BOOTSTRAP_OBS = "bootstrap_obs"
"""The observation after each sequence, [B, 1, ...]. For a stateful module, the sequence's observations come before it,
[B, T + 1, ...], so that its value is computed in the right recurrent state."""


class VTraceSequences:
    """Cuts the rows of every module into sequences [B, T, ...], and adds `bootstrap_obs`.

    V-trace needs the values of the present weights at each step and after the last one, so the loss computes it on
    whole sequences. A stateful module has the default sequences of `max_seq_len` steps. Other modules have sequences of
    up to `length` steps. After an episode that terminated no value is needed, so the next episode follows in the same
    sequence if it fits, which saves padding.

    A batch without episodes (one that the caller made) is returned as it is.

    Args:
        length: T for modules without a state.
    """

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(
        self, *, learner: LearnerProtocol, batch: ModuleColumns, episodes: Sequence[Episode]
    ) -> ModuleColumns:
        """Return `batch` as sequences, with `seq_lens` and `bootstrap_obs`."""
        by_module = episodes_by_module(episodes)
        batch = split_into_sequences(learner=learner, batch=batch, episodes=episodes)
        return {
            module_id: self._with_bootstrap(learner, module_id, columns, by_module[module_id])
            if module_id in by_module
            else columns
            for module_id, columns in batch.items()
        }

    def connect_steps(
        self, *, learner: LearnerProtocol, batch: Mapping[ModuleID, Mapping[str, Tensor]]
    ) -> dict[ModuleID, dict[str, Tensor]]:
        """Return steps of environments of tensors as sequences: all steps of an environment are one.

        Where episodes end in them depends on values, which are on a device, so that each step has its `new_obs` in
        place of `bootstrap_obs`.

        Args:
            learner: gives ops.
            batch: `{module_id: {column: [T, N, ...]}}`.

        Returns:
            `{module_id: {column: [N, T, ...]}}` and `seq_lens` [N], an array.
        """
        ops, found = learner.ops, {}
        for module_id, columns in batch.items():
            steps, number = ops.shape(columns[Columns.REWARDS])
            swapped = {
                column: ops.permute_dims(each, (1, 0, *range(2, len(ops.shape(each)))))
                for column, each in columns.items()
            }
            found[module_id] = {**swapped, Columns.SEQ_LENS: np.full(number, steps, np.int32)}
        return found

    def _with_bootstrap(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        columns: dict[str, Array],
        episodes: Sequence[SingleAgentEpisode],
    ) -> dict[str, Array]:
        whole = [episode for episode in episodes if len(episode)]
        if learner.module[module_id].is_stateful:
            lengths = columns[Columns.SEQ_LENS]
            return {**columns, BOOTSTRAP_OBS: _observations_at_ends(whole, lengths, lengths)}
        lengths = np.array(packed_lengths(whole, self.length), np.int32)
        padded = {column: pad(rows, lengths, self.length) for column, rows in columns.items()}
        bootstrap = _observations_at_ends(whole, lengths, np.zeros_like(lengths))
        return {**padded, Columns.SEQ_LENS: lengths, BOOTSTRAP_OBS: bootstrap}


def packed_lengths(episodes: Sequence[SingleAgentEpisode], longest: int) -> list[int]:
    """The lengths of sequences into which episodes are packed one after the other.

    A sequence ends where the next piece of an episode does not fit, and where an episode was cut off, since the
    observation after it needs a value.

    Args:
        episodes: with at least one step each.
        longest: steps of the longest sequence allowed.

    Returns:
        The lengths; their sum is that of the episodes.
    """
    lengths: list[int] = []
    is_open = False
    for episode in episodes:
        for length in piece_lengths(len(episode), longest):
            if is_open and lengths[-1] + length <= longest:
                lengths[-1] += length
            else:
                lengths.append(length)
            is_open = False
        is_open = episode.terminated
    return lengths


def _observations_at_ends(episodes: Sequence[SingleAgentEpisode], lengths: Array, before: Array) -> Array:
    """The observation behind each sequence and so many before it, padded to the same number."""
    found = [
        episode.observations[stop - n : stop + 1]
        for (episode, stop), n in zip(_ends(episodes, lengths), before, strict=True)
    ]
    return pad(np.concatenate(found), before + 1, int(before.max()) + 1)


def _ends(episodes: Sequence[SingleAgentEpisode], lengths: Array) -> Iterator[tuple[SingleAgentEpisode, int]]:
    """The episode in which each sequence ends, and after how many of its steps."""
    stops = np.cumsum([len(episode) for episode in episodes])
    for end in np.cumsum(lengths):
        number = int(np.searchsorted(stops, end))
        yield episodes[number], len(episodes[number]) - int(stops[number] - end)
