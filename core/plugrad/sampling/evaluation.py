"""Evaluation: the returns of whole episodes of a policy.

Knows env runners; knows nothing of frameworks, modules or learners.
"""

from typing import NamedTuple

from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.whole_episodes import chunks_of_first_episodes


class Evaluation(NamedTuple):
    """Whole episodes, in the order in which they began."""

    returns: list[float]
    lengths: list[int]


def evaluate(runner: EnvRunner, *, num_episodes: int, seed: int | None = None) -> Evaluation:
    """Run `num_episodes` new episodes to their ends: the first that begin.

    Args:
        runner: one that is not used for training, with a policy that does not explore; its environments
            are reset, and its normaliser, if any, should be frozen
            (`ObservationNormalizer.frozen_copy`).
        num_episodes: how many, >= 1.
        seed: the same seed and policy give the same returns.
    """
    returns, lengths = [0.0] * num_episodes, [0] * num_episodes
    for number, chunk in chunks_of_first_episodes(runner, num_episodes=num_episodes, seed=seed):
        returns[number] += chunk.get_return()
        lengths[number] += len(chunk)
    return Evaluation(returns, lengths)
