"""Evaluation: the returns of whole episodes of a policy.

Knows env runners; knows nothing of frameworks, modules or learners.
"""

from typing import NamedTuple

from plugrad.errors import ConfigError
from plugrad.sampling.env_runner import EnvRunner

_STEPS_PER_LOOK = (
    32  # finished episodes are noticed this often; at most so many vector steps are done in vain
)


class Evaluation(NamedTuple):
    """Whole episodes, in the order in which they began."""

    returns: list[float]
    lengths: list[int]


def evaluate(runner: EnvRunner, *, num_episodes: int, seed: int | None = None) -> Evaluation:
    """Run `num_episodes` new episodes to their ends.

    They are the first that begin, not the first that end: those would be the short ones.

    Args:
        runner: one that is not used for training, with a policy that does not explore; its environments
            are reset, and its normaliser, if any, should be frozen
            (`ObservationNormalizer.frozen_copy`).
        num_episodes: how many, >= 1.
        seed: the same seed and policy give the same returns.

    An environment that never ends an episode makes this run for ever: wrap it in
    `gymnasium.wrappers.TimeLimit`.
    """
    if num_episodes < 1:
        raise ConfigError(f"an evaluation needs at least 1 episode, asked for {num_episodes}")
    runner.reset(seed)
    first = runner.num_episodes_begun + 1
    returns, lengths = [0.0] * num_episodes, [0] * num_episodes
    unfinished = num_episodes
    while unfinished:
        for episode in runner.sample(_STEPS_PER_LOOK):
            number = int(episode.id_ or 0) - first
            if number < num_episodes:
                returns[number] += episode.get_return()
                lengths[number] += len(episode)
                unfinished -= episode.is_done
    return Evaluation(returns, lengths)
