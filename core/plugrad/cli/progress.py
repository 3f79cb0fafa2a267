"""What a training run has come to: plain numbers, read once from an Algorithm's results.

Everybody who shows, stores or judges progress reads it here; this room knows no screen and no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plugrad.types import ALL_MODULES

WINDOW = 20
"""Episodes that a mean return is taken over before it counts."""

TIMESTEPS = "num_env_steps_sampled_lifetime"
ITERATION = "training_iteration"
RETURN = "env_runners/episode_return_mean"
EPISODES = "env_runners/num_episodes_lifetime"
SECONDS = "time/total"
_SAMPLED, _EVALUATED = "env_runners/", "evaluation/"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """After one iteration.

    Attributes:
        seconds: spent training, those before a resume included.
        session_seconds: spent training since the start or the resume.
        steps_per_second: environment steps, over the last iterations.
        return_mean: over the last `WINDOW` episodes; None before the first has ended.
        modules: `{module id: {metric: value}}`.
        stages: seconds of the last iteration by stage.
    """

    iteration: int
    timesteps: int
    seconds: float
    session_seconds: float = 0.0
    steps_per_second: float = 0.0
    episodes: int = 0
    return_mean: float | None = None
    length_mean: float | None = None
    modules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def window_is_full(self) -> bool:
        """Whether the mean return is one of `WINDOW` episodes."""
        return self.return_mean is not None and self.episodes >= WINDOW

    @classmethod
    def of(
        cls, row: Mapping[str, float], *, session_seconds: float = 0.0, steps_per_second: float = 0.0
    ) -> "Progress":
        """From a row of numbers, see `scalars`."""
        return cls(
            iteration=int(row[ITERATION]),
            timesteps=int(row[TIMESTEPS]),
            seconds=row.get(SECONDS, 0.0),
            session_seconds=session_seconds,
            steps_per_second=steps_per_second,
            episodes=int(row.get(EPISODES, 0)),
            return_mean=row.get(RETURN),
            length_mean=row.get("env_runners/episode_len_mean"),
            modules=_by_module(row),
            stages={
                key.removeprefix("time/"): value
                for key, value in row.items()
                if key.startswith("time/") and key not in (SECONDS, "time/iteration")
            },
        )


def scalars(results: Mapping[str, Any]) -> dict[str, float]:
    """The single numbers among results; lists and arrays have no place in a table.

    Where nothing is sampled, evaluation episodes stand for training episodes: under both names.
    """
    row = {
        key: value
        for key, value in results.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if not any(key.startswith(_SAMPLED) for key in row):
        row |= {key.replace(_EVALUATED, _SAMPLED): row[key] for key in row if key.startswith(_EVALUATED)}
    return row


def _by_module(row: Mapping[str, float]) -> dict[str, dict[str, float]]:
    modules: dict[str, dict[str, float]] = {}
    for key, value in row.items():
        group, _, rest = key.partition("/")
        module_id, _, metric = rest.partition("/")
        if group == "learners" and metric and module_id != ALL_MODULES:
            modules.setdefault(module_id, {})[metric] = value
    return modules
