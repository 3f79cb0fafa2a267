"""What a cell of the zoo is: an algorithm on an environment, with settings for every library."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from statistics import mean
from typing import Any

from zoo_settings import PPOSettings, Settings

SECONDS_WARM_UP = 1_000
"""Environment steps before the clock of a run for seconds starts: what compiles has compiled."""
SECONDS_STEPS = 5_000


@dataclass(frozen=True)
class Published:
    """What others published: a mean and a standard deviation of returns.

    Attributes:
        mean: of the returns.
        std: of the returns of one run's episodes, or of the means of runs.
        steps: environment steps of that run.
        note: how the run differs from ours; "": it does not.
        in_training: the returns are those of the last training episodes, not of an evaluation afterwards.
    """

    mean: float
    std: float
    steps: int
    note: str = ""
    in_training: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """One algorithm on one environment.

    Attributes:
        name: of the cell; its files begin with it.
        algorithm: short name.
        env: id of a Gymnasium environment.
        steps: environment steps of a run.
        seeds: number of runs of each library; 0: the cell is only for seconds.
        evaluate_every: environment steps between two points of the learning curve.
        curve_episodes: episodes for each point.
        final_episodes: episodes of the evaluation at the end.
        options: settings of the algorithm.
        source: where the settings come from.
        is_tuned: whether plugrad has them as tuned settings.
        published: what others published; None: nothing for so many steps.
        remark: on its result, for the page of results.
    """

    name: str
    algorithm: str
    env: str
    steps: int
    seeds: int
    evaluate_every: int
    final_episodes: int
    curve_episodes: int = 10
    options: Settings
    source: str
    is_tuned: bool = False
    published: Published | None = None
    remark: str = ""

    def means(self, runs: Iterable[Mapping[str, Any]]) -> list[float]:
        """The mean return of each run, by the statistic of what is published.

        Args:
            runs: of one library.

        Returns:
            Means of the last training episodes where others published those, of runs that have them; else of the
            evaluation at the end.
        """
        name = "training_returns" if self.published is not None and self.published.in_training else "returns"
        return [mean(run[name]) for run in runs if name in run]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the libraries share, for a run's file; without an LSTM nothing is said of it."""
        return {name: value for name, value in asdict(self.options).items() if name != "lstm" or value}

    @property
    def command(self) -> list[str]:
        """What a user types after `plugrad`, without backend, seed and folder."""
        words = ["train", self.algorithm, self.env]
        if self.is_tuned:
            words.append("--tuned")
        elif isinstance(self.options, PPOSettings):
            for section, settings in self.options.as_config().items():
                for name, value in settings.items():
                    words += [f"--{section}.{name}", _as_toml(value)]
        return [*words, "--stop-reward", "inf", "--stop-timesteps", str(self.steps)]

    @property
    def is_atari(self) -> bool:
        """Whether the environment is an Atari game that gets the standard preprocessing."""
        return isinstance(self.options, PPOSettings) and self.options.atari

    @property
    def is_cleanrls(self) -> bool:
        """Whether it has CleanRL's settings, where others have been run on the environment, too."""
        return self.name.endswith("-cleanrl")

    @property
    def warm_up(self) -> int:
        """Environment steps of whole updates before the clock of a run for seconds starts."""
        return self._whole_updates(SECONDS_WARM_UP)

    @property
    def timed_steps(self) -> int:
        """Environment steps of whole updates while that clock runs."""
        return self._whole_updates(SECONDS_STEPS)

    def _whole_updates(self, steps: int) -> int:
        return ceil(steps / self.options.steps_per_update) * self.options.steps_per_update


def _as_toml(value: Any) -> str:
    """A setting as `plugrad train` takes it: a word alone, else a value of TOML."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {json.dumps(each)}' for name, each in value.items())}}}"
    return json.dumps(value)
