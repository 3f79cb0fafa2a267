"""Whole episodes, to judge a policy by or to record: the first that begin, not the first that end.

The first that end would be the short ones. Knows env runners; knows nothing of frameworks, modules or learners.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import ConfigError
from plugrad.sampling.env_runner import EnvRunner

_STEPS_PER_LOOK = (
    32  # finished episodes are noticed this often; at most so many vector steps are done in vain
)


def chunks_of_first_episodes(
    runner: EnvRunner, *, num_episodes: int, seed: int | None = None
) -> Iterator[tuple[int, SingleAgentEpisode]]:
    """Run `num_episodes` new episodes to their ends.

    Args:
        runner: one that is not used for training; its environments are reset.
        num_episodes: how many, >= 1.
        seed: the same seed and policy give the same episodes.

    Yields:
        `(number, chunk)`: the chunks of episode `number`, from 0, come in order; those of different episodes mixed.

    An environment that never ends an episode makes this run for ever: wrap it in `gymnasium.wrappers.TimeLimit`.
    """
    if num_episodes < 1:
        raise ConfigError(f"at least 1 episode is needed, asked for {num_episodes}")
    runner.reset(seed)
    first = runner.num_episodes_begun + 1
    unfinished = num_episodes
    while unfinished:
        for chunk in runner.sample(_STEPS_PER_LOOK):
            number = int(chunk.id_ or 0) - first
            if number < num_episodes:
                yield number, chunk
                unfinished -= chunk.is_done


def first_episodes(
    runner: EnvRunner, *, num_episodes: int, seed: int | None = None
) -> list[SingleAgentEpisode]:
    """The episodes themselves, in the order in which they began; arguments as `chunks_of_first_episodes`."""
    chunks: list[list[SingleAgentEpisode]] = [[] for _ in range(num_episodes)]
    for number, chunk in chunks_of_first_episodes(runner, num_episodes=num_episodes, seed=seed):
        chunks[number].append(chunk)
    return [join(each) for each in chunks]


def join(chunks: Sequence[SingleAgentEpisode]) -> SingleAgentEpisode:
    """Consecutive chunks of one episode as one: each begins with the observation that the one before it ended with."""
    return replace(
        chunks[-1],
        observations=np.concatenate(
            [chunks[0].observations[:1], *[each.observations[1:] for each in chunks]]
        ),
        actions=np.concatenate([each.actions for each in chunks]),
        rewards=np.concatenate([each.rewards for each in chunks]),
        extra_model_outputs={
            column: np.concatenate([each.extra_model_outputs[column] for each in chunks])
            for column in chunks[-1].extra_model_outputs
        },
    )
