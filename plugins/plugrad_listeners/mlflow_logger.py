"""Iterations as a run of MLflow: a template for a logger of your own."""

import os
from collections.abc import Mapping
from typing import Any

from plugrad_listeners.run_logger import RunLogger, required

_MAX_PARAM_LENGTH = 500
"""Characters of a parameter's value, by the limit of older MLflow servers."""


class MlflowLogger(RunLogger):
    """Logs every number of every iteration at its timestep, and the settings as parameters.

    Server and experiment come from MLflow's environment variables (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ...).

    Args:
        **settings: of `MlflowClient.create_run`, such as `run_name="first"`.

    Raises:
        MissingFrameworkError: at the first iteration, if mlflow is not installed.
    """

    def begin(self, algorithm: Any) -> tuple[Any, str]:
        """Create a run, and return MLflow's client and the run's id."""
        mlflow = required("mlflow")
        client = mlflow.MlflowClient()
        experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "plugrad"))
        run_id = client.create_run(experiment.experiment_id, **self._settings).info.run_id
        for name, value in algorithm.config.to_dict().items():
            client.log_param(run_id, name, str(value)[:_MAX_PARAM_LENGTH])
        return client, run_id

    def log(self, run: tuple[Any, str], numbers: Mapping[str, float], step: int) -> None:
        """Log one metric per number. See `RunLogger.log`."""
        client, run_id = run
        for name, value in numbers.items():
            client.log_metric(run_id, name, value, step=step)

    def end(self, run: tuple[Any, str]) -> None:
        """Mark the run as finished."""
        client, run_id = run
        client.set_terminated(run_id)


listener = MlflowLogger()
