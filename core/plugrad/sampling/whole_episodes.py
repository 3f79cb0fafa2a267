"""Whole episodes, for evaluation and for recordings: the first that begin, since the first that end are short ones."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from plugrad.episodes import Episode, MultiAgentEpisode, concat_chunks, concat_multi_agent_chunks
from plugrad.errors import ConfigError

EpisodeT = TypeVar("EpisodeT", bound=Episode)
EpisodeT_co = TypeVar("EpisodeT_co", bound=Episode, covariant=True)


class SamplesEpisodes(Protocol[EpisodeT_co]):
    """An env runner, of environments with one agent or with many."""

    @property
    def num_episodes_begun(self) -> int: ...  # noqa: D102
    def reset(self, seed: int | None = None) -> None: ...  # noqa: D102
    def sample(self, num_steps_per_env: int | None = None) -> Sequence[EpisodeT_co]: ...  # noqa: D102


_STEPS_PER_SAMPLE = 32
"""At most this many vector steps are wasted after the last episode ends."""


def sample_episode_chunks(
    runner: SamplesEpisodes[EpisodeT], *, num_episodes: int, seed: int | None = None
) -> Iterator[tuple[int, EpisodeT]]:
    """Run `num_episodes` new episodes to their ends.

    If an environment never ends an episode, this never returns: wrap it in `gymnasium.wrappers.TimeLimit`.

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
    while unfinished > 0:
        for chunk in runner.sample(_STEPS_PER_SAMPLE):
            number = int(chunk.id_ or 0) - first
            if number < num_episodes:
                yield number, chunk
                unfinished -= chunk.is_done


def sample_episodes(
    runner: SamplesEpisodes[EpisodeT], *, num_episodes: int, seed: int | None = None
) -> list[EpisodeT]:
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
    chunks: list[list[EpisodeT]] = [[] for _ in range(num_episodes)]
    for number, chunk in sample_episode_chunks(runner, num_episodes=num_episodes, seed=seed):
        chunks[number].append(chunk)
    return [_concat(each) for each in chunks]


def _concat(chunks: Sequence[Any]) -> Any:
    concat = concat_multi_agent_chunks if isinstance(chunks[0], MultiAgentEpisode) else concat_chunks
    return concat(chunks)
