"""Where the checkpoints of a run directory lie. `plugrad train` writes them."""

from pathlib import Path
from typing import Final

from plugrad.errors import CheckpointError

CONFIG: Final = "config.toml"
"""A directory that has it is a run directory."""


def last(run: Path) -> Path:
    """Of the last iteration, to resume from."""
    return run / "checkpoints" / "last"


def best(run: Path) -> Path:
    """Of the best mean return."""
    return run / "checkpoints" / "best"


def to_judge(run: Path) -> Path | None:
    """The checkpoint to judge a run by: the best if there is one, else the last; None: there is none."""
    return next((path for path in (best(run), last(run)) if path.is_dir()), None)


def checkpoint_of(path: Path) -> Path:
    """`path`, or of a run directory the checkpoint to judge it by.

    Raises:
        CheckpointError: the run directory has none.
    """
    if not (path / CONFIG).is_file():
        return path
    found = to_judge(path)
    if found is None:
        raise CheckpointError(f"{path} has no checkpoint yet", path=str(path))
    return found
