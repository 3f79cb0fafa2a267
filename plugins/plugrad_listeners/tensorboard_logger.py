"""Iterations as TensorBoard events, written by tensorboardX: what `plugrad train --tensorboard` uses."""

import secrets
from collections.abc import Mapping
from typing import Any

from plugrad_listeners.run_logger import RunLogger, required


class TensorboardLogger(RunLogger):
    """Logs every number of every iteration at its timestep.

    `plugrad train` gets its event file in the run directory. For an Algorithm that you train yourself, tensorboardX
    chooses `runs/<time>_<host>`, unless you give a `logdir`.

    Args:
        **settings: of `tensorboardX.SummaryWriter`, such as `logdir="events"`.

    Raises:
        MissingFrameworkError: at the first iteration, if tensorboardX is not installed.
    """

    def begin(self, algorithm: Any) -> Any:
        """Create the event file."""
        # The suffix: tensorboardX would write through a link that someone put at a name that can be guessed.
        unique = {"logdir": algorithm.run_directory, "filename_suffix": f".{secrets.token_hex(8)}"}
        settings = {**unique, **self._settings}
        return required("tensorboardX", extra="tensorboard").SummaryWriter(**settings)

    def log(self, run: Any, numbers: Mapping[str, float], step: int) -> None:
        """Write one event per number. See `RunLogger.log`."""
        for name, value in numbers.items():
            run.add_scalar(name, value, step)

    def end(self, run: Any) -> None:
        """Write what is still in memory and close the file."""
        run.close()


listener = TensorboardLogger()
