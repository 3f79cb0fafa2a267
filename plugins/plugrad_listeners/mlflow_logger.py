"""Iterations as a run of MLflow: a template for a logger. Its package is imported when a run begins."""

import os
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from plugrad import hookimpl
from plugrad_listeners.numbers import TIMESTEPS, numbers_of, required

_MOST_LETTERS = 500
"""Of a parameter's value, by MLflow's own limit in older servers."""


class MlflowLogger:
    """Logs every number of every iteration at its timestep, and the settings as parameters.

    Server and experiment come from MLflow's own variables (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ...).

    Args:
        **settings: of `MlflowClient.create_run`, such as `run_name="first"`.

    Raises:
        MissingFrameworkError: at the first iteration, if mlflow is not installed.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._runs: WeakKeyDictionary[Any, tuple[Any, str]] = WeakKeyDictionary()

    @hookimpl
    def iteration_ended(self, algorithm: Any, results: Mapping[str, Any]) -> None:
        """Log one iteration. See `ListenerSpec.iteration_ended`."""
        if algorithm not in self._runs:
            self._runs[algorithm] = self._begin(algorithm)
        client, run_id = self._runs[algorithm]
        step = int(results[TIMESTEPS])
        for name, value in numbers_of(results).items():
            client.log_metric(run_id, name, value, step=step)

    def _begin(self, algorithm: Any) -> tuple[Any, str]:
        mlflow = required("mlflow")
        client = mlflow.MlflowClient()
        experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "plugrad"))
        run_id = client.create_run(experiment.experiment_id, **self._settings).info.run_id
        for name, value in algorithm.config.to_dict().items():
            client.log_param(run_id, name, str(value)[:_MOST_LETTERS])
        return client, run_id

    @hookimpl
    def algorithm_stopped(self, algorithm: Any) -> None:
        """End the run."""
        if algorithm in self._runs:
            client, run_id = self._runs.pop(algorithm)
            client.set_terminated(run_id)


listener = MlflowLogger()
