"""The progress of a training run as plain numbers, how they are printed, and the goals that end it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from plugrad.types import ALL_MODULES

WINDOW = 20
"""Episodes over which a mean return is taken; with fewer it is not compared with a goal."""
DEFAULT_TIMESTEPS = 1_000_000

TIMESTEPS = "num_env_steps_sampled_lifetime"
ITERATION = "training_iteration"
RETURN = "env_runners/episode_return_mean"
EVALUATED_RETURN = "evaluation/episode_return_mean"
EPISODES = "env_runners/num_episodes_lifetime"
SECONDS = "time/total"
METRIC_WORDS = {
    "total_loss": "loss",
    "policy_loss": "policy",
    "vf_loss": "value",
    "entropy": "entropy",
    "mean_kl": "KL",
    "mean_kl_loss": "KL",
    "gradients_default_optimizer_global_norm": "grad norm",
    "default_optimizer_learning_rate": "lr",
}
"""What is shown of the metrics of a module, if it reports them, and its name in a column."""
_SAMPLED, _EVALUATED = "env_runners/", "evaluation/"
_NUM_EVALUATED = "evaluation/num_episodes"
_OVER: Mapping[str, Callable[..., float]] = {
    "episode_return_mean": fmean,
    "episode_len_mean": fmean,
    "episode_return_min": min,
    "episode_return_max": max,
}
_EVALUATION = {_NUM_EVALUATED, *(_EVALUATED + name for name in _OVER)}


def return_words(value: float) -> str:
    """A return with one decimal, a small one with three digits: "487.3", "9.61", "0.0123"."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def range_words(low: float, high: float) -> str:
    """The lowest and the highest of some returns: "from 9.61 to 487.3"."""
    return f"from {return_words(low)} to {return_words(high)}"


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
        evaluation_mean: mean return of the last evaluation beside training, or None.
        best_mean: the best so far of that which chooses the best checkpoint, see `History.best`; or None.
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
    evaluation_mean: float | None = None
    best_mean: float | None = None
    modules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def window_is_full(self) -> bool:
        """Whether the mean return is taken over `WINDOW` episodes."""
        return self.return_mean is not None and self.episodes >= WINDOW

    @property
    def full_window_mean(self) -> float | None:
        """The mean return if it is taken over `WINDOW` episodes, else None."""
        return self.return_mean if self.window_is_full else None

    @classmethod
    def of(
        cls,
        row: Mapping[str, float],
        *,
        session_seconds: float = 0.0,
        steps_per_second: float = 0.0,
        evaluation_mean: float | None = None,
        best_mean: float | None = None,
    ) -> "Progress":
        """Read a row of metrics.

        Args:
            row: one iteration's numbers by flat key, see `scalars`.
            session_seconds: see the attributes.
            steps_per_second: see the attributes.
            evaluation_mean: see the attributes.
            best_mean: see the attributes.

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
            evaluation_mean=evaluation_mean,
            best_mean=best_mean,
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
        mean = progress.full_window_mean
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
        before: the evaluations among the rows before it, the `evaluations` of a `History`.

    Returns:
        The returns and the length of these episodes; empty if the row has no evaluation.
    """
    if not row.keys() >= _EVALUATION:
        return {}
    taken = _last_evaluations([*before, row])
    weights = [each[_NUM_EVALUATED] for each in taken]
    found = {}
    for name, over in _OVER.items():
        values = [each[_EVALUATED + name] for each in taken]
        found[_SAMPLED + name] = fmean(values, weights) if over is fmean else over(values)
    return found


def _last_evaluations(rows: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """The last evaluations that have `WINDOW` episodes together, the newest one first."""
    taken: list[Mapping[str, float]] = []
    for each in reversed(rows):
        if len(taken) == WINDOW or sum(one[_NUM_EVALUATED] for one in taken) >= WINDOW:
            break
        taken.append(each)
    return taken


class History:
    """What a training loop keeps of the rows of metrics so far: the last one, the best returns, the last evaluations.

    Attributes:
        last: the last row; None before the first.
        best_trained: the best mean return over `WINDOW` training episodes, or None.
        best_of_few: the same over as many episodes as had ended, or None.
        best_evaluated: the best mean return of an evaluation, or None.
        evaluations: the last evaluations, with `WINDOW` episodes at least if there were as many, oldest first.
    """

    def __init__(self) -> None:
        self.last: Mapping[str, float] | None = None
        self.best_trained: float | None = None
        self.best_of_few: float | None = None
        self.best_evaluated: float | None = None
        self.evaluations: list[Mapping[str, float]] = []

    def add(self, row: Mapping[str, float]) -> None:
        """Take the row of the next iteration."""
        self.last = row
        mean = row.get(RETURN)
        self.best_of_few = _better(self.best_of_few, mean)
        if row.get(EPISODES, 0) >= WINDOW:
            self.best_trained = _better(self.best_trained, mean)
        self.best_evaluated = _better(self.best_evaluated, row.get(EVALUATED_RETURN))
        if row.keys() >= _EVALUATION:
            own = {name: row[name] for name in _EVALUATION}
            self.evaluations = _last_evaluations([*self.evaluations, own])[::-1]

    @property
    def evaluated(self) -> float | None:
        """The mean return of the last evaluation, or None."""
        return self.evaluations[-1][EVALUATED_RETURN] if self.evaluations else None

    def best(self, *, by_evaluation: bool) -> float | None:
        """The best mean return.

        Args:
            by_evaluation: of evaluations, else of training over `WINDOW` episodes.

        Returns:
            The best; None before the first.
        """
        return self.best_evaluated if by_evaluation else self.best_trained


def _better(best: float | None, value: float | None) -> float | None:
    """The larger of two numbers; one that is None or nan is none."""
    if value is None or value != value:
        return best
    return value if best is None else max(best, value)


def _by_module(row: Mapping[str, float]) -> dict[str, dict[str, float]]:
    modules: dict[str, dict[str, float]] = {}
    for key, value in row.items():
        group, _, rest = key.partition("/")
        module_id, _, metric = rest.partition("/")
        if group == "learners" and metric and module_id != ALL_MODULES:
            modules.setdefault(module_id, {})[metric] = value
    return modules
