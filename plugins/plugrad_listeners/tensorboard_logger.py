"""TensorBoard events of a run, written by tensorboardX: what `plugrad train --tensorboard` uses."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from plugrad import hookimpl
from plugrad_listeners.numbers import TIMESTEPS, numbers_of, required


class TensorboardLogger:
    """Logs every number of every iteration at its timestep.

    `plugrad train` gets its event file in the run directory. An Algorithm that you train yourself has none: there
    tensorboardX chooses `runs/<time>_<host>`, unless you give a `logdir`.

    Args:
        **settings: of `tensorboardX.SummaryWriter`, such as `logdir="events"`.

    Raises:
        MissingFrameworkError: at the first iteration, if tensorboardX is not installed.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._writers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @hookimpl
    def iteration_ended(self, algorithm: Any, results: Mapping[str, Any]) -> None:
        """Log one iteration. See `ListenerSpec.iteration_ended`."""
        if algorithm not in self._writers:
            writer = required("tensorboardX", extra="tensorboard").SummaryWriter
            self._writers[algorithm] = writer(**{"logdir": algorithm.run_directory, **self._settings})
        for name, value in numbers_of(results).items():
            self._writers[algorithm].add_scalar(name, value, int(results[TIMESTEPS]))

    @hookimpl
    def algorithm_stopped(self, algorithm: Any) -> None:
        """Write what is still in memory and close the file."""
        if algorithm in self._writers:
            self._writers.pop(algorithm).close()


listener = TensorboardLogger()
