"""What a command that judges a policy opens: the algorithm of a run directory, or of a checkpoint alone."""

from pathlib import Path
from typing import TYPE_CHECKING

from plugrad.cli.run_directory import RunDirectory, saying_what_a_run_needs

if TYPE_CHECKING:
    from plugrad.algorithm import Algorithm


def open_trained(run: Path, backend: str | None) -> tuple["Algorithm", Path]:
    """The algorithm, restored, and the checkpoint that it was restored from.

    Args:
        run: a run directory, of which the best checkpoint is taken, or a checkpoint. The settings of a run may name
            code, such as an environment's class; those of a checkpoint may not.
        backend: another than the one that trained.
    """
    from plugrad.algorithm import Algorithm  # late: --help needs no algorithm

    if not (run / "config.toml").is_file():
        return Algorithm.from_checkpoint(str(run), backend=backend), run
    directory = RunDirectory(run)
    path = directory.checkpoint()
    with saying_what_a_run_needs(run):
        config = directory.read_config().plugins()  # judging a policy is nothing for its listeners
        algorithm = (config if backend is None else config.framework(backend)).build_algo()
    algorithm.restore_from_path(str(path))
    return algorithm, path
