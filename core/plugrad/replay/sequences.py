"""`SequenceTransitions`: rows of a replay buffer that are sequences, for modules with a recurrent state.

Source: Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2),
https://openreview.net/forum?id=r1lyTjAqYX, sections 2.3 and 3: sequences begin in the stored state, and the steps of a
burn-in renew it with the present weights before those that are trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plugrad.batch.forms import STATE_COLUMNS, state_columns
from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode, masks_of
from plugrad.replay.n_step import NStepTransitions, follows, from_step, joined, transitions
from plugrad.replay.storage import Rows
from plugrad.types import Array

LARGEST_ERROR_SHARE = 0.9
"""Weight of the largest error of a sequence in its priority; the mean has the rest (R2D2, section 2.3)."""


@dataclass(frozen=True, eq=False)
class SequenceForm:
    """What the sequences of a module look like.

    Args:
        steps: that are trained, at most: `max_seq_len`.
        burn_in: steps before them, at most; fewer where an episode begins.
        initial_state: at the start of an episode, `{name: array}`.
    """

    steps: int
    burn_in: int
    initial_state: Mapping[str, Array]

    @property
    def width(self) -> int:
        """The number of steps of each sequence; shorter ones are padded at their ends."""
        return self.burn_in + self.steps

    def row_shapes(self, of_steps: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The shapes of a row of the replay buffer.

        Args:
            of_steps: those of transitions, `{column: shape}`.

        Returns:
            `{column: (width, *shape)}`, and those of the columns that only sequences have.
        """
        shapes = {
            column: (self.width, *shape) for column, shape in of_steps.items() if column != Columns.N_STEP
        }
        states = state_columns(Columns.STATE_IN, self.initial_state)
        shapes |= {column: np.shape(value) for column, value in states.items()}
        return shapes | {Columns.LOSS_MASK: (self.width,), Columns.SEQ_LENS: ()}


class SequenceTransitions(NStepTransitions):
    """Sequences of transitions of one step. Each step of an episode is trained in one of them.

    A running episode is cut after every `form.steps` steps; what is left waits for the next chunk, or makes a shorter
    sequence where the episode ends.

    Args:
        form: of the sequences.
        gamma: discount per step.
    """

    def __init__(self, form: SequenceForm, gamma: float) -> None:
        super().__init__(1, gamma)
        self._form = form

    def _divide(
        self, chunk: SingleAgentEpisode, before: SingleAgentEpisode | None
    ) -> tuple[Rows, SingleAgentEpisode | None]:
        """The sequences `{column: [N, width, ...]}` of whole lengths, and the steps that wait, with their burn-in.

        Among the steps that wait, those of the burn-in have a LOSS_MASK of False.
        """
        whole = self._with_states(chunk)
        if before is not None and follows(whole, before):
            whole = joined(before, whole)
        form, end = self._form, len(whole)
        first = end - int(whole.extra_model_outputs[Columns.LOSS_MASK].sum())
        if not whole.is_done:
            end = first + (end - first) // form.steps * form.steps
        rows = self._sequences(whole, np.arange(first, end, form.steps))
        if whole.is_done:
            return rows, None
        rest = from_step(whole, max(0, end - form.burn_in), whole.extra_model_outputs)
        rest.extra_model_outputs[Columns.LOSS_MASK][: min(form.burn_in, end)] = False
        return rows, rest

    def _with_states(self, chunk: SingleAgentEpisode) -> SingleAgentEpisode:
        """A chunk with its masks, and the state of each step; without recorded ones, that of an episode's start."""
        extra = chunk.extra_model_outputs
        states = {
            name: extra.get(name, np.broadcast_to(value, (len(chunk), *np.shape(value))))
            for name, value in state_columns(Columns.STATE_IN, self._form.initial_state).items()
        }
        counts = {Columns.LOSS_MASK: np.ones(len(chunk), bool)}
        return replace(chunk, extra_model_outputs={**masks_of(chunk), **states, **counts})

    def _sequences(self, whole: SingleAgentEpisode, starts: Array) -> Rows:
        """The sequences whose first trained steps are `starts`."""
        begins = np.maximum(starts - self._form.burn_in, 0)
        lengths = np.minimum(starts + self._form.steps, len(whole)) - begins
        steps = begins[:, None] + np.arange(self._form.width)
        is_real = steps < (begins + lengths)[:, None]
        taken = np.where(is_real, steps, 0)
        rows = {}
        for column, values in transitions(whole, 1, self._gamma).items():
            if column != Columns.N_STEP:
                rows[column] = values[taken]
                rows[column][~is_real] = 0
        for column, values in whole.extra_model_outputs.items():
            if column.split("/")[0] in STATE_COLUMNS:
                rows[column] = values[begins]
        rows[Columns.LOSS_MASK] = is_real & (steps >= starts[:, None])
        rows[Columns.SEQ_LENS] = lengths.astype(np.int32)
        return rows


def sequence_priorities(errors: Array, loss_mask: Array) -> Array:
    """The error by which each sequence is prioritized: 0.9 of its largest one and 0.1 of the mean (R2D2, section 2.3).

    Args:
        errors: [N, T].
        loss_mask: bool [N, T], the steps that count; one or more of each sequence.

    Returns:
        float [N].
    """
    sizes = np.where(loss_mask, np.abs(errors), 0.0)
    means = sizes.sum(1) / loss_mask.sum(1)
    found: Array = LARGEST_ERROR_SHARE * sizes.max(1) + (1.0 - LARGEST_ERROR_SHARE) * means
    return found


def steps_per_minibatch(batch: Mapping[Any, Mapping[str, Array]], minibatches: int) -> int:
    """The `minibatch_size` that divides sequences into minibatches of equal numbers, however short they are.

    Args:
        batch: `{module_id: columns}`.
        minibatches: how many.

    Returns:
        Steps that count, of the module that has the most.
    """
    most = max(
        int(rows[Columns.LOSS_MASK].sum()) if Columns.LOSS_MASK in rows else len(rows[Columns.OBS])
        for rows in batch.values()
    )
    return max(1, round(most / minibatches))
