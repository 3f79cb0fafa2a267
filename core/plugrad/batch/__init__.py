"""Batches: their forms, the checks before an update, minibatch rows, and sequences with recurrent states."""

from plugrad.batch.batch_errors import missing_column, refuse
from plugrad.batch.checks import (
    check,
    check_actions,
    check_masks,
    check_observation_values,
    check_observations,
)
from plugrad.batch.forms import (
    Batch,
    EnvSteps,
    MultiAgentBatch,
    Rows,
    are_sequences,
    by_module,
    env_steps_of,
    join_batches,
    minibatch,
    portable,
)
from plugrad.batch.sequences import next_columns, of_next, pad, piece_lengths, unpad, with_state

__all__ = [
    "Batch",
    "EnvSteps",
    "MultiAgentBatch",
    "Rows",
    "are_sequences",
    "by_module",
    "check",
    "check_actions",
    "check_masks",
    "check_observation_values",
    "check_observations",
    "env_steps_of",
    "join_batches",
    "minibatch",
    "missing_column",
    "next_columns",
    "of_next",
    "pad",
    "piece_lengths",
    "portable",
    "refuse",
    "unpad",
    "with_state",
]
