"""The progress of a training run as plain numbers, and the goals that end it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from plugrad.cli.returns import return_words
from plugrad.types import ALL_MODULES

WINDOW = 20
"""Episodes over which a mean return is taken; with fewer it is not compared with a goal."""
DEFAULT_TIMESTEPS = 1_000_000

TIMESTEPS = "num_env_steps_sampled_lifetime"
ITERATION = "training_iteration"
RETURN = "env_runners/episode_return_mean"
EPISODES = "env_runners/num_episodes_lifetime"
SECONDS = "time/total"
_SAMPLED, _EVALUATED = "env_runners/", "evaluation/"
_NUM_EVALUATED = "evaluation/num_episodes"
_OVER: Mapping[str, Callable[..., float]] = {
    "episode_return_mean": fmean,
    "episode_len_mean": fmean,
    "episode_return_min": min,
    "episode_return_max": max,
}
_EVALUATION = {_NUM_EVALUATED, *(_EVALUATED + name for name in _OVER)}


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of a run after one iteration.

    Attributes:
        iteration: iterations so far, counted over resumes.
        timesteps: environment steps so far, counted over resumes.
        seconds: training time so far, in seconds, counted over resumes.
        session_seconds: training time since the start or the last resume, in seconds.
        steps_per_second: environment steps per second over the last iterations.
        episodes: episodes so far.
        return_mean: mean return of the last `WINDOW` episodes; None before the first has ended.
        length_mean: mean length of the same episodes in steps, or None.
        modules: `{module id: {metric: value}}`.
        stages: seconds of the last iteration by stage, such as "sample" and "learn".
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
        """Whether the mean return is taken over `WINDOW` episodes."""
        return self.return_mean is not None and self.episodes >= WINDOW

    @classmethod
    def of(
        cls, row: Mapping[str, float], *, session_seconds: float = 0.0, steps_per_second: float = 0.0
    ) -> "Progress":
        """Read a row of metrics.

        Args:
            row: one iteration's numbers by flat key, see `scalars`.
            session_seconds: see the attributes.
            steps_per_second: see the attributes.

        Returns:
            The progress.
        """
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


@dataclass(frozen=True, kw_only=True)
class Goals:
    """When a run ends: at the first goal that it reaches.

    Attributes:
        reward: mean return over the last `WINDOW` episodes, or None.
        timesteps: environment steps, counted over resumes.
        seconds: training time since the start or the last resume, or None.
    """

    reward: float | None
    timesteps: int
    seconds: float | None = None

    def reached(self, progress: Progress) -> str | None:
        """The reason to stop, in words, or None."""
        if self.has_reward(progress) and progress.return_mean is not None:
            mean = f"mean return {return_words(progress.return_mean)} over the last {WINDOW} episodes"
            return f"reached {self.reward:g}: {mean}"
        missed = "" if self.reward is None else f", without reaching {self.reward:g}"
        if progress.timesteps >= self.timesteps:
            return f"stopped at {progress.timesteps:,} timesteps{missed}"
        if self.seconds is not None and progress.session_seconds >= self.seconds:
            return f"stopped after {self.seconds:g} seconds{missed}"
        return None

    def has_reward(self, progress: Progress) -> bool:
        """Whether the reward goal is reached."""
        mean = progress.return_mean if progress.window_is_full else None
        return self.reward is not None and mean is not None and mean >= self.reward

    def fraction(self, progress: Progress, first_return: float | None) -> float:
        """How much of the run is done, by the goal that is nearest.

        Args:
            progress: now.
            first_return: the first mean return of the run, from which the distance to the reward is taken.

        Returns:
            A number from 0 to 1.
        """
        fractions = [progress.timesteps / self.timesteps]
        if self.seconds is not None:
            fractions.append(progress.session_seconds / self.seconds)
        if self.reward is not None and progress.return_mean is not None and first_return is not None:
            distance = self.reward - first_return
            fractions.append((progress.return_mean - first_return) / distance if distance > 0 else 1.0)
        return min(1.0, max(0.0, *fractions))


def scalars(results: Mapping[str, Any]) -> dict[str, float]:
    """The single numbers among an Algorithm's results: one row of metrics.

    Where nothing is sampled, the results of evaluation are given as those of env runners too.
    """
    row = {
        key: value
        for key, value in results.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if not any(key.startswith(_SAMPLED) for key in row):
        row |= {key.replace(_EVALUATED, _SAMPLED): row[key] for key in row if key.startswith(_EVALUATED)}
    return row


def over_evaluations(row: Mapping[str, float], before: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What an offline run's row has in place of sampled episodes: those of its last evaluations, at least `WINDOW`.

    Args:
        row: an iteration's numbers, see `scalars`.
        before: the rows of the iterations before it.

    Returns:
        The returns and the length of these episodes; empty if the row has no evaluation.
    """
    if not row.keys() >= _EVALUATION:
        return {}
    taken: list[Mapping[str, float]] = []
    evaluations = (each for each in (row, *reversed(before)) if each.keys() >= _EVALUATION)
    while sum(each[_NUM_EVALUATED] for each in taken) < WINDOW and (each := next(evaluations, None)):
        taken.append(each)
    weights = [each[_NUM_EVALUATED] for each in taken]
    found = {}
    for name, over in _OVER.items():
        values = [each[_EVALUATED + name] for each in taken]
        found[_SAMPLED + name] = fmean(values, weights) if over is fmean else over(values)
    return found


def _by_module(row: Mapping[str, float]) -> dict[str, dict[str, float]]:
    modules: dict[str, dict[str, float]] = {}
    for key, value in row.items():
        group, _, rest = key.partition("/")
        module_id, _, metric = rest.partition("/")
        if group == "learners" and metric and module_id != ALL_MODULES:
            modules.setdefault(module_id, {})[metric] = value
    return modules
