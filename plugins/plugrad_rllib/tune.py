"""Ray Tune: an Algorithm as a trial's Trainable, with its checkpoints; a trial may change settings as it goes on."""

from collections.abc import Mapping
from typing import Any

from ray import tune

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.importing.names import main_is_elsewhere
from plugrad.results import Results


class AlgorithmTrainable(tune.Trainable):
    """What Ray Tune runs as one trial; `trainable(config)` makes a subclass of it for a config.

    Each step is `Algorithm.train()`, whose results have flat keys, such as "env_runners/episode_return_mean", as the
    `metric` of a search and the keys of `stop`. A trial goes on from a checkpoint with the settings that Tune gives it
    then, so population-based training changes them.

    Attributes:
        base: the config that all trials share.
        algorithm: of this trial.
    """

    base: AlgorithmConfig
    algorithm: Algorithm

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
        """What Ray reserves for a trial: its process with the env runners that it starts, then each remote learner.

        Args:
            config: the trial's settings.

        Returns:
            The bundles, in CPUs and GPUs.
        """
        whole = cls.base.changed(**config)
        learner = {"CPU": whole.num_cpus_per_learner, "GPU": whole.num_gpus_per_learner}
        process: dict[str, int | float] = {"CPU": 1 + whole.num_env_runners}
        return tune.PlacementGroupFactory([process, *([learner] * whole.num_learners)])

    def setup(self, config: Mapping[str, Any]) -> None:
        """Build the algorithm; Tune calls this.

        Args:
            config: the trial's settings, by the names that the config has.
        """
        main_is_elsewhere()  # a program's own classes keep the names that they have there
        self.algorithm = self.base.changed(**config).build_algo()

    def step(self) -> Results:
        """Train for one iteration; Tune calls this.

        Returns:
            The results of `Algorithm.train()`; the mean return is nan until an episode has ended.
        """
        return Results({"env_runners/episode_return_mean": float("nan"), **self.algorithm.train()})

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the algorithm; Tune calls this.

        Args:
            checkpoint_dir: an empty directory, which `Algorithm.from_checkpoint` reads afterwards, too.
        """
        self.algorithm.save_to_path(checkpoint_dir)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a checkpoint, with this trial's settings; Tune calls this.

        Args:
            checkpoint: its directory.
        """
        self.algorithm.restore_from_path(checkpoint, hyperparameters="config")

    def cleanup(self) -> None:
        """End environments, env runners and learners; Tune calls this."""
        self.algorithm.stop()


def trainable(config: AlgorithmConfig) -> type[AlgorithmTrainable]:
    """The class that `tune.Tuner` takes for a config: `tune.Tuner(trainable(config), param_space={"lr": ...})`.

    Args:
        config: what all trials share. `param_space` has the settings of a trial by their names here, whichever method
            sets them, such as `{"lr": tune.loguniform(1e-5, 1e-2), "seed": tune.grid_search([0, 1])}`.

    Returns:
        A class named after the algorithm, such as `PPO`.
    """
    name = type(config).__name__.removesuffix("Config")
    return type(name, (AlgorithmTrainable,), {"base": config, "__module__": __name__})


def check_learning_achieved(
    tune_results: tune.ResultGrid,
    min_value: float,
    evaluation: bool = False,
    metric: str = "env_runners/episode_return_mean",
) -> None:
    """Check that some trial has reached a value, at the end of RLlib's examples.

    Args:
        tune_results: of `Tuner.fit()`.
        min_value: the least value that is enough.
        evaluation: whether the mean return of evaluation counts, in place of `metric`.
        metric: a key of the results.

    Raises:
        ValueError: no trial has reached it.
    """
    key = "evaluation/episode_return_mean" if evaluation else metric
    reached = [
        value
        for each in (tune_results[n] for n in range(len(tune_results)))
        if each.metrics_dataframe is not None and key in each.metrics_dataframe
        for value in each.metrics_dataframe[key].dropna()
    ]
    if not reached or max(reached) < min_value:
        found = f"the best of {len(reached)} values is {max(reached):g}" if reached else "there is none"
        raise ValueError(f"no trial has reached {key}={min_value:g}: {found}")
