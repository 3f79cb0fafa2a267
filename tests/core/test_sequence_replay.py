"""Sequences of a replay buffer: which steps each has, what waits, what a checkpoint keeps, how they are prioritized."""

from dataclasses import replace

import numpy as np
import pytest

from plugrad import Columns
from plugrad.episodes import SingleAgentEpisode
from plugrad.replay.sequences import SequenceForm, SequenceTransitions, sequence_priorities

FORM = SequenceForm(3, 2, {"h": np.zeros(1, np.float32)})
STEPS = 8
STATE = f"{Columns.STATE_IN}/h"


def episode(begin: int, end: int, *, states: bool = True) -> SingleAgentEpisode:
    """Steps of one episode, whose observations, rewards and states are the numbers of the steps."""
    steps = np.arange(begin, end, dtype=np.float32)
    return SingleAgentEpisode(
        observations=np.arange(begin, end + 1, dtype=np.float32)[:, None],
        actions=steps.astype(np.int64),
        rewards=steps,
        terminated=end == STEPS,
        extra_model_outputs={STATE: steps[:, None]} if states else {},
        id_="e",
        t_started=begin,
    )


def test_each_step_is_trained_once_after_its_burn_in() -> None:
    rows = SequenceTransitions(FORM, 0.9)([episode(0, STEPS)])
    x = 0  # padding
    np.testing.assert_array_equal(
        rows[Columns.OBS][..., 0], [[0, 1, 2, x, x], [1, 2, 3, 4, 5], [4, 5, 6, 7, x]]
    )
    np.testing.assert_array_equal(rows[Columns.NEXT_OBS][1, :, 0], [2, 3, 4, 5, 6])
    np.testing.assert_array_equal(
        rows[Columns.LOSS_MASK], [[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 0]]
    )
    np.testing.assert_array_equal(rows[Columns.TERMINATEDS].nonzero(), [[2], [3]])
    np.testing.assert_array_equal(rows[STATE], [[0], [1], [4]])
    np.testing.assert_array_equal(rows[Columns.SEQ_LENS], [3, 5, 4])
    shapes = {Columns.OBS: (1,), Columns.N_STEP: ()}
    assert FORM.row_shapes(shapes) == {
        name: rows[name].shape[1:] for name in (Columns.OBS, STATE, Columns.LOSS_MASK, Columns.SEQ_LENS)
    }


@pytest.mark.parametrize("burn_in", [0, 2])
@pytest.mark.parametrize("cuts", [(1, 4, 6), (3, 6), tuple(range(1, STEPS))])
def test_chunks_give_the_sequences_of_the_whole_episode_also_after_a_checkpoint(
    cuts: tuple[int, ...], burn_in: int
) -> None:
    form = replace(FORM, burn_in=burn_in)
    whole, make, parts = (
        SequenceTransitions(form, 0.9)([episode(0, STEPS)]),
        SequenceTransitions(form, 0.9),
        [],
    )
    for begin, end in zip((0, *cuts), (*cuts, STEPS), strict=True):
        parts.append(make([episode(begin, end)]))
        state, make = make.get_state(), SequenceTransitions(form, 0.9)
        make.set_state(state)
    assert not make.get_state()
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([each[name] for each in parts]), values)


def test_where_chunks_were_lost_a_sequence_begins_in_the_state_that_was_recorded() -> None:
    make = SequenceTransitions(FORM, 0.9)
    make([episode(0, 2)])
    rows = make([episode(4, STEPS)])
    np.testing.assert_array_equal(rows[STATE], [[4], [5]])
    rows = SequenceTransitions(FORM, 0.9)([episode(0, STEPS, states=False)])
    np.testing.assert_array_equal(rows[STATE], 0)


def test_priorities_are_those_of_r2d2() -> None:
    errors, mask = np.array([[-2.0, 1.0, 9.0], [3.0, 3.0, 3.0]]), np.array([[1, 1, 0], [1, 1, 1]], bool)
    np.testing.assert_allclose(sequence_priorities(errors, mask), [0.9 * 2.0 + 0.1 * 1.5, 3.0])
