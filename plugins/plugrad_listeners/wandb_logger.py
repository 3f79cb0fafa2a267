"""Iterations as a run of Weights & Biases: a template for a logger. Its package is imported when a run begins."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from plugrad import hookimpl
from plugrad_listeners.numbers import TIMESTEPS, numbers_of, required


class WandbLogger:
    """Logs every number of every iteration at its timestep, and the settings as the run's config.

    Project, name and mode come from the arguments or from W&B's own variables (WANDB_PROJECT, WANDB_MODE=offline, ...).

    Args:
        **settings: of `wandb.init`, such as `project="cartpole"`.

    Raises:
        MissingFrameworkError: at the first iteration, if wandb is not installed.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._runs: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @hookimpl
    def iteration_ended(self, algorithm: Any, results: Mapping[str, Any]) -> None:
        """Log one iteration. See `ListenerSpec.iteration_ended`."""
        if algorithm not in self._runs:
            wandb = required("wandb")
            settings = {"config": algorithm.config.to_dict(), "reinit": "create_new", **self._settings}
            self._runs[algorithm] = wandb.init(**settings)
        self._runs[algorithm].log(numbers_of(results), step=int(results[TIMESTEPS]))

    @hookimpl
    def algorithm_stopped(self, algorithm: Any) -> None:
        """Finish the run."""
        if algorithm in self._runs:
            self._runs.pop(algorithm).finish()


listener = WandbLogger()
