"""`RunLogger`: what the loggers share. One run of a tracking service per Algorithm."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

from plugrad import hookimpl
from plugrad.errors import MissingFrameworkError

TIMESTEPS = "num_env_steps_sampled_lifetime"


class RunLogger(ABC):
    """Logs every number of every iteration at its timestep.

    A logger says how a run begins, how numbers are logged, and how the run ends. It imports its package when a run
    begins, never before.

    Args:
        **settings: of the service's run; each logger says which.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._runs: WeakKeyDictionary[Any, Any] = (
            WeakKeyDictionary()
        )  # several Algorithms may share one logger

    @abstractmethod
    def begin(self, algorithm: Any) -> Any:
        """Begin a run, before the first iteration is logged, and return it."""

    @abstractmethod
    def log(self, run: Any, numbers: Mapping[str, float], step: int) -> None:
        """Log one iteration.

        Args:
            run: what `begin` returned.
            numbers: the results that are single numbers.
            step: environment steps so far.
        """

    @abstractmethod
    def end(self, run: Any) -> None:
        """End a run."""

    @hookimpl
    def iteration_ended(self, algorithm: Any, results: Mapping[str, Any]) -> None:
        """Log one iteration. See `ListenerSpec.iteration_ended`."""
        if algorithm not in self._runs:
            self._runs[algorithm] = self.begin(algorithm)
        numbers = {key: float(value) for key, value in results.items() if isinstance(value, int | float)}
        self.log(self._runs[algorithm], numbers, int(results[TIMESTEPS]))

    @hookimpl
    def algorithm_stopped(self, algorithm: Any) -> None:
        """End the run."""
        if algorithm in self._runs:
            self.end(self._runs.pop(algorithm))


def required(package: str, *, extra: str = "") -> Any:
    """Import a logger's package.

    Args:
        package: the module's name.
        extra: the extra of plugrad that installs it; default: the package's name.

    Returns:
        The module.

    Raises:
        MissingFrameworkError: it is not installed; the message says what to install.
    """
    if find_spec(package) is None:
        extra = extra or package
        raise MissingFrameworkError(
            f'the {extra} logger needs {package}: pip install "plugrad[{extra}]"', requires=package
        )
    return import_module(package)
