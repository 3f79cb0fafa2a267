"""The interquartile mean and its bootstrap intervals (Agarwal et al. 2021, arXiv:2108.13264, section 4)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

REPETITIONS = 20_000
NO_BREAK = "\N{NO-BREAK SPACE}"


def interquartile_mean(scores: Sequence[Sequence[float]]) -> float:
    """Mean of the middle half of all runs of all tasks.

    Args:
        scores: `[task][run]`; tasks may have different numbers of runs, and are in the same unit.

    Returns:
        The mean without the lowest and the highest quarter, each rounded down to whole runs.
    """
    return float(_trimmed(np.concatenate([np.asarray(runs, float) for runs in scores])[None])[0])


def interval(scores: Sequence[Sequence[float]], share: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile interval of the interquartile mean. Runs are drawn anew within each task.

    Args:
        scores: as for `interquartile_mean`.
        share: of the bootstrap's means that lie within.
        seed: of the bootstrap.

    Returns:
        The lower and the upper end.
    """
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(np.asarray(runs, float), (REPETITIONS, len(runs))) for runs in scores]
    low, high = np.quantile(_trimmed(np.concatenate(drawn, axis=1)), [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def mean_and_interval(scores: Sequence[float], number: Callable[[float], str]) -> str:
    """The interquartile mean of runs, and small beside it the interval and how many they are, as Markdown.

    Args:
        scores: of runs of one task; none: the text is empty.
        number: writes one.

    Returns:
        The text. What is small has spaces that do not break: each line of a table stays one or two lines high.
    """
    if not scores:
        return ""
    low, high = interval([scores])
    small = f"{number(low)} to {number(high)}, {len(scores)}".replace(" ", NO_BREAK)
    return f"{number(interquartile_mean([scores]))} <sub>{small}</sub>"


def _trimmed(scores: np.ndarray) -> Any:
    cut = scores.shape[1] // 4
    return np.sort(scores, axis=1)[:, cut : scores.shape[1] - cut].mean(axis=1)
