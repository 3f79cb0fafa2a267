"""Whole episodes, for evaluation and for recordings: the first that begin, since the first that end are short ones."""

from collections.abc import Iterator

from plugrad.episodes import SingleAgentEpisode, concat_chunks
from plugrad.errors import ConfigError
from plugrad.sampling.env_runner import EnvRunner

_STEPS_PER_SAMPLE = 32
"""At most so many vector steps are made in vain after the last episode ends."""


def sample_episode_chunks(
    runner: EnvRunner, *, num_episodes: int, seed: int | None = None
) -> Iterator[tuple[int, SingleAgentEpisode]]:
    """Run `num_episodes` new episodes to their ends.

    An environment that never ends an episode makes this run for ever: wrap it in `gymnasium.wrappers.TimeLimit`.

    Args:
        runner: one that is not used for training; its environments are reset.
        num_episodes: how many, >= 1.
        seed: for the environments: the same seed and policy give the same episodes.

    Yields:
        `(number, chunk)`: the chunks of episode `number`, from 0, in order; those of different episodes are mixed.

    Raises:
        ConfigError: fewer than 1 episode.
    """
    if num_episodes < 1:
        raise ConfigError(f"at least 1 episode is needed, asked for {num_episodes}")
    runner.reset(seed)
    first = runner.num_episodes_begun + 1
    unfinished = num_episodes
    while unfinished:
        for chunk in runner.sample(_STEPS_PER_SAMPLE):
            number = int(chunk.id_ or 0) - first
            if number < num_episodes:
                yield number, chunk
                unfinished -= chunk.is_done


def sample_episodes(
    runner: EnvRunner, *, num_episodes: int, seed: int | None = None
) -> list[SingleAgentEpisode]:
    """Run `num_episodes` new episodes to their ends.

    Args:
        runner: as in `sample_episode_chunks`.
        num_episodes: how many, >= 1.
        seed: for the environments.

    Returns:
        Whole episodes, in the order in which they began.

    Raises:
        ConfigError: fewer than 1 episode.
    """
    chunks: list[list[SingleAgentEpisode]] = [[] for _ in range(num_episodes)]
    for number, chunk in sample_episode_chunks(runner, num_episodes=num_episodes, seed=seed):
        chunks[number].append(chunk)
    return [concat_chunks(each) for each in chunks]
