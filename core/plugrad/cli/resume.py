"""Going on with a run: its last good checkpoint, and metrics that end where it was written."""

from typing import TYPE_CHECKING

import click

from plugrad.checkpoint import list_saves
from plugrad.cli.run_directory import RunDirectory
from plugrad.errors import CheckpointCorruptError, CheckpointError
from plugrad.learner.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    from plugrad.algorithm import Algorithm


def resume(algorithm: "Algorithm", run: RunDirectory, hyperparameters: Hyperparameters) -> None:
    """Bring the algorithm to the newest undamaged checkpoint; later metrics are cut, they will be trained again.

    A damaged checkpoint is reported on stderr and the one before it taken.

    Args:
        algorithm: built from the run's settings.
        run: where its checkpoints lie.
        hyperparameters: see `Algorithm.restore_from_path`.

    Raises:
        CheckpointError: there is none, or none that can be read.
    """
    saves = list_saves(run.last)[::-1] if run.last.is_dir() else []
    for save in saves:
        try:
            algorithm.restore_from_path(str(save), hyperparameters=hyperparameters)
        except CheckpointCorruptError as error:
            click.echo(f"plugrad: warning: {error}; trying the one before", err=True)
            continue
        run.metrics.cut(algorithm.iteration)
        return
    raise CheckpointError(f"{run.path} has no readable checkpoint to resume from")
