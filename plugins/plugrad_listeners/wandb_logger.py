"""Iterations as a run of Weights & Biases: a template for a logger of your own."""

from collections.abc import Mapping
from typing import Any

from plugrad_listeners.run_logger import RunLogger, required


class WandbLogger(RunLogger):
    """Logs every number of every iteration at its timestep, and the settings as the run's config.

    Project, name and mode come from the arguments or from W&B's environment variables (WANDB_PROJECT, WANDB_MODE, ...).

    Args:
        **settings: of `wandb.init`, such as `project="cartpole"`.

    Raises:
        MissingFrameworkError: at the first iteration, if wandb is not installed.
    """

    def begin(self, algorithm: Any) -> Any:
        """Begin a run, beside those of other Algorithms in this process."""
        settings = {"config": algorithm.config.to_dict(), "reinit": "create_new", **self._settings}
        return required("wandb").init(**settings)

    def log(self, run: Any, numbers: Mapping[str, float], step: int) -> None:
        """Log one iteration. See `RunLogger.log`."""
        run.log(numbers, step=step)

    def end(self, run: Any) -> None:
        """Finish the run."""
        run.finish()


listener = WandbLogger()
