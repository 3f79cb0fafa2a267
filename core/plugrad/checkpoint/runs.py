"""The checkpoints of a run directory, as `plugrad train` writes them."""

from pathlib import Path
from typing import Final

from plugrad.errors import CheckpointError

CONFIG: Final = "config.toml"
"""Every run directory has this file."""


def last(run: Path) -> Path:
    """The checkpoint of the last iteration, to resume from."""
    return run / "checkpoints" / "last"


def best(run: Path) -> Path:
    """The checkpoint of the best mean return."""
    return run / "checkpoints" / "best"


def best_or_last(run: Path) -> Path | None:
    """The best checkpoint of a run if there is one, else the last; None if it has neither."""
    return next((path for path in (best(run), last(run)) if path.is_dir()), None)


def checkpoint_of(path: Path) -> Path:
    """The best checkpoint of a run directory, else the last; any other path is a checkpoint itself.

    Raises:
        CheckpointError: the run directory has no checkpoint.
    """
    if not (path / CONFIG).is_file():
        return path
    found = best_or_last(path)
    if found is None:
        raise CheckpointError(f"{path} has no checkpoint yet", path=str(path))
    return found
