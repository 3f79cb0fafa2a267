"""Going on with a run: its last good checkpoint, and metrics that end where it was written."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from plugrad.checkpoint import Checkpoint, list_saves
from plugrad.cli.run_directory import RunDirectory
from plugrad.errors import CheckpointCorruptError, CheckpointError
from plugrad.learner import checkpointing
from plugrad.learner.checkpointing import Hyperparameters
from plugrad.learner.expected_weights import expecting_weights

if TYPE_CHECKING:
    from plugrad.algorithm import Algorithm


def newest_good_save(run: RunDirectory) -> Checkpoint:
    """The newest undamaged checkpoint; a damaged one is reported on stderr and the one before it taken.

    Raises:
        CheckpointError: there is none, or none that can be read.
    """
    for save in list_saves(run.last)[::-1] if run.last.is_dir() else []:
        try:
            return checkpointing.load(save, kind="algorithm")
        except CheckpointCorruptError as error:
            click.echo(f"plugrad: warning: {error}; trying the one before", err=True)
    raise CheckpointError(f"{run.path} has no readable checkpoint to resume from")


def expecting(save: Checkpoint | None) -> AbstractContextManager[None]:
    """Within it, learners are built for the weights of a save, if there is one."""
    return nullcontext() if save is None else expecting_weights(save.state.get("learner", {}))


def resume(
    algorithm: "Algorithm", run: RunDirectory, save: Checkpoint, hyperparameters: Hyperparameters
) -> None:
    """Bring the algorithm to a save; later metrics are cut, they will be trained again.

    Args:
        algorithm: built from the run's settings.
        run: whose save it is.
        save: see `newest_good_save`.
        hyperparameters: see `Algorithm.restore_from_path`.
    """
    algorithm.restore_from_path(str(save.path), hyperparameters=hyperparameters)
    run.metrics.cut(algorithm.iteration)
