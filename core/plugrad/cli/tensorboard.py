"""Rows of metrics as TensorBoard events, by tensorboardX."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plugrad.cli.progress import TIMESTEPS
from plugrad.errors import MissingFrameworkError


class TensorBoardRecorder:
    """Writes each row at its timestep.

    Args:
        directory: where the event file goes.

    Raises:
        MissingFrameworkError: tensorboardX is not installed.
    """

    def __init__(self, directory: Path) -> None:
        require_tensorboard()
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

        self._writer: Any = SummaryWriter(str(directory))

    def __call__(self, row: dict[str, float]) -> None:
        """Write one iteration."""
        for key, value in row.items():
            self._writer.add_scalar(key, value, int(row[TIMESTEPS]))

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()


def require_tensorboard() -> None:
    """Raise `MissingFrameworkError` unless tensorboardX is installed."""
    if find_spec("tensorboardX") is None:
        raise MissingFrameworkError('--tensorboard needs tensorboardX: pip install "plugrad[tensorboard]"')
