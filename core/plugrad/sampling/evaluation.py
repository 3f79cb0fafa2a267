"""Evaluation: the returns of whole episodes of a policy."""

from typing import NamedTuple

from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.whole_episodes import sample_episode_chunks


class Evaluation(NamedTuple):
    """Returns and lengths of whole episodes, in the order in which they began."""

    returns: list[float]
    lengths: list[int]


def evaluate(runner: EnvRunner, *, num_episodes: int, seed: int | None = None) -> Evaluation:
    """Run a number of new episodes to their ends.

    Args:
        runner: one that is not used for training, with a policy that does not explore. Its environments are reset.
            Its normaliser, if any, should be frozen (`ObservationNormalizer.frozen_copy`).
        num_episodes: how many, >= 1.
        seed: for the environments: the same seed and policy give the same returns.

    Returns:
        Undiscounted returns, and lengths in steps, of the first `num_episodes` that begin.

    Raises:
        ConfigError: fewer than 1 episode.
    """
    returns, lengths = [0.0] * num_episodes, [0] * num_episodes
    for number, chunk in sample_episode_chunks(runner, num_episodes=num_episodes, seed=seed):
        returns[number] += chunk.get_return()
        lengths[number] += len(chunk)
    return Evaluation(returns, lengths)
