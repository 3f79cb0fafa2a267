"""Batches: rows and sequences, how they are checked, and recurrent states as columns."""

from plugrad.batch.batch import (
    Batch,
    EnvSteps,
    MultiAgentBatch,
    Rows,
    are_sequences,
    by_module,
    check,
    check_actions,
    env_steps_of,
    missing_column,
    portable,
    refuse,
)

__all__ = [
    "Batch",
    "EnvSteps",
    "MultiAgentBatch",
    "Rows",
    "are_sequences",
    "by_module",
    "check",
    "check_actions",
    "env_steps_of",
    "missing_column",
    "portable",
    "refuse",
]
