"""Whole episodes, for evaluation and for recordings: the first that begin, since the first that end are short ones.

An episode that never ends is cut at a number of steps: a policy that does not explore may run against a wall for ever.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

from plugrad.config import Config
from plugrad.episodes import Episode, MultiAgentEpisode, concat_chunks, concat_multi_agent_chunks
from plugrad.errors import ConfigError
from plugrad.sampling.multi_agent.metrics import AGENT_RETURNS, MODULE_RETURNS

_log = logging.getLogger("plugrad")

EpisodeT = TypeVar("EpisodeT", bound=Episode)
EpisodeT_co = TypeVar("EpisodeT_co", bound=Episode, covariant=True)


class SamplesEpisodes(Protocol[EpisodeT_co]):
    """An env runner, of environments with one agent or with many."""

    @property
    def num_envs(self) -> int: ...  # noqa: D102
    @property
    def num_episodes_begun(self) -> int: ...  # noqa: D102
    def reset(self, seed: int | None = None) -> None: ...  # noqa: D102
    def info_metrics_of(self, id_: str) -> Mapping[str, float]: ...  # noqa: D102
    def tell_until(self, number: int) -> None: ...  # noqa: D102
    def sample(self, num_steps_per_env: int | None = None) -> Sequence[EpisodeT_co]: ...  # noqa: D102


_STEPS_PER_SAMPLE = 32
"""At most this many vector steps are wasted after the last episode ends."""


SECONDS_IN_SILENCE = 30.0
"""After so long without the end of an episode a line says what is waited for; the next one after twice that time."""


def sample_episode_chunks(
    runner: SamplesEpisodes[EpisodeT],
    *,
    num_episodes: int,
    seed: int | None = None,
    max_steps: int | None = None,
) -> Iterator[tuple[int, EpisodeT]]:
    """Run `num_episodes` new episodes to their ends.

    Args:
        runner: one that is not used for training; its environments are reset.
        num_episodes: how many, >= 1.
        seed: for the environments: the same seed and policy give the same episodes.
        max_steps: an episode that goes on after so many steps is cut there, and its last chunk is truncated. Where all
            environments are in such episodes, all begin new ones. None: no limit; if an environment never ends an
            episode, this never returns.

    Yields:
        `(number, chunk)`: the chunks of episode `number`, from 0, in order; those of different episodes are mixed.

    Raises:
        ConfigError: fewer than 1 episode.
    """
    if num_episodes < 1:
        raise ConfigError(f"at least 1 episode is needed, asked for {num_episodes}")
    runner.reset(seed)
    first = runner.num_episodes_begun + 1
    runner.tell_until(first + num_episodes - 1)
    done = num_cut = num_resets = 0
    running: dict[int, int] = {}  # the steps so far of episodes that are waited for
    left: set[int] = set()  # episodes that were cut, and in which an environment still is
    silence = _Silence(num_episodes, max_steps)
    while done < num_episodes:
        if len(left) == runner.num_envs:
            num_resets += 1
            runner.reset(None if seed is None else seed + num_resets)
            first = runner.num_episodes_begun + 1 - done
            runner.tell_until(first + num_episodes - 1)
            left.clear()
        steps = _STEPS_PER_SAMPLE
        if max_steps is not None:  # so that no episode goes beyond its limit
            steps = min(steps, max_steps - max(running.values(), default=0))
        for chunk in runner.sample(steps):
            number = int(chunk.id_ or 0) - first
            if number in left or number >= num_episodes:
                left -= {number} if chunk.is_done else set()
                continue
            running[number] = running.get(number, 0) + len(chunk)
            if not chunk.is_done and running[number] == max_steps:
                chunk = _truncated(chunk)
                left.add(number)
                num_cut += 1
            if chunk.is_done:
                done += 1
                del running[number]
            yield number, chunk
        silence.listen(done, longest=max(running.values(), default=0))
    if num_cut:
        _log.warning(
            "%d of %d episodes did not end, and were cut at evaluation_max_episode_steps=%s; "
            "env_runners(time_limit=...) ends such episodes in training too",
            num_cut,
            num_episodes,
            max_steps,
        )


class _Silence:
    """The time without the end of an episode, and the lines that say what is waited for.

    Args:
        num_episodes: as in `sample_episode_chunks`.
        max_steps: as in `sample_episode_chunks`.
    """

    def __init__(self, num_episodes: int, max_steps: int | None) -> None:
        self._num_episodes = num_episodes
        self._cut = (
            "" if max_steps is None else f", and is cut at step {max_steps} (evaluation_max_episode_steps)"
        )
        self._done, self._since, self._patience = 0, monotonic(), SECONDS_IN_SILENCE

    def listen(self, done: int, *, longest: int) -> None:
        """After each sample: `done` episodes have ended so far, and the longest running one has `longest` steps."""
        seconds = monotonic() - self._since
        if done > self._done:
            self._done, self._since, self._patience = done, monotonic(), SECONDS_IN_SILENCE
        elif seconds > self._patience:
            self._patience *= 2
            _log.warning(
                "%d of %d episodes have ended, none of them in the last %.0f s; the longest is at step %d%s",
                done,
                self._num_episodes,
                seconds,
                longest,
                self._cut,
            )


def _truncated(chunk: Any) -> Any:
    """The chunk as the last one of a truncated episode; with many agents, of all that have not ended."""
    if isinstance(chunk, MultiAgentEpisode):
        parts = {
            agent: each if each.is_done else replace(each, truncated=True)
            for agent, each in chunk.agent_episodes.items()
        }
        return replace(chunk, agent_episodes=parts, truncated=True)
    return replace(chunk, truncated=True)


def sample_episodes(
    runner: SamplesEpisodes[EpisodeT],
    *,
    num_episodes: int,
    seed: int | None = None,
    max_steps: int | None = None,
) -> list[EpisodeT]:
    """Run `num_episodes` new episodes to their ends.

    Args:
        runner: as in `sample_episode_chunks`.
        num_episodes: how many, >= 1.
        seed: for the environments.
        max_steps: as in `sample_episode_chunks`.

    Returns:
        Whole episodes, in the order in which they began.

    Raises:
        ConfigError: fewer than 1 episode.
    """
    chunks: list[list[EpisodeT]] = [[] for _ in range(num_episodes)]
    found = sample_episode_chunks(runner, num_episodes=num_episodes, seed=seed, max_steps=max_steps)
    for number, chunk in found:
        chunks[number].append(chunk)
    return [_concat(each) for each in chunks]


def _concat(chunks: Sequence[Any]) -> Any:
    concat = concat_multi_agent_chunks if isinstance(chunks[0], MultiAgentEpisode) else concat_chunks
    return concat(chunks)


# --- their returns ---


class Evaluation(NamedTuple):
    """Returns and lengths of whole episodes, in the order in which they began.

    Args:
        returns: undiscounted; with many agents the sums over all of them.
        lengths: in steps of the environment.
        returns_by_name: with many agents, `{"agent_episode_returns_mean/<agent>": returns,
            "module_episode_returns_mean/<module>": returns}` of the episodes in which these took part. With
            `info_metrics` also `{"info/<name>": numbers}` of the episodes that had them.
    """

    returns: list[float]
    lengths: list[int]
    returns_by_name: dict[str, list[float]]


def evaluate(
    runner: SamplesEpisodes[Any],
    *,
    num_episodes: int,
    seed: int | None = None,
    max_steps: int | None = None,
) -> Evaluation:
    """Run a number of new episodes to their ends.

    Args:
        runner: one that is not used for training. Its environments are reset. Its normalisers, if any, should be
            frozen (`ObservationNormalizer.frozen_copy`).
        num_episodes: how many, >= 1.
        seed: for the environments: the same seed and policy give the same returns.

        max_steps: of an episode, which is cut there. None: no limit.

    Returns:
        Returns and lengths of the first `num_episodes` that begin.

    Raises:
        ConfigError: fewer than 1 episode.
    """
    returns, lengths = [0.0] * num_episodes, [0] * num_episodes
    by_name: list[dict[str, float]] = [{} for _ in range(num_episodes)]
    chunks = sample_episode_chunks(runner, num_episodes=num_episodes, seed=seed, max_steps=max_steps)
    for number, chunk in chunks:
        returns[number] += chunk.get_return()
        lengths[number] += len(chunk)
        if isinstance(chunk, MultiAgentEpisode):
            _add_parts(by_name[number], chunk)
        if chunk.is_done:
            by_name[number].update(runner.info_metrics_of(str(chunk.id_)))
    names = sorted({name for each in by_name for name in each})
    return Evaluation(
        returns, lengths, {name: [each[name] for each in by_name if name in each] for name in names}
    )


def evaluation_settings(config: Config) -> dict[str, Any]:
    """The settings that change for evaluation and recording: rewards and episodes are then the environment's own.

    Training may scale rewards, and end an episode where a life is lost.
    """
    fields = type(config).fields().items()
    changes = {name: info.in_evaluation for name, info in fields if info.in_evaluation is not None}
    return {name: change(getattr(config, name)) for name, change in changes.items()}


def _add_parts(sums: dict[str, float], chunk: MultiAgentEpisode) -> None:
    for agent, value in chunk.get_returns().items():
        for name in (f"{AGENT_RETURNS}/{agent}", f"{MODULE_RETURNS}/{chunk.module_for(agent)}"):
            sums[name] = sums.get(name, 0.0) + value
