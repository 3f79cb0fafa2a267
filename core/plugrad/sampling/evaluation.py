"""Evaluation: the returns of whole episodes of a policy, or of the policies of many agents."""

from typing import Any, NamedTuple

from plugrad.config import Config
from plugrad.episodes import MultiAgentEpisode
from plugrad.sampling.multi_agent.metrics import AGENT_RETURNS, MODULE_RETURNS
from plugrad.sampling.whole_episodes import SamplesEpisodes, sample_episode_chunks


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
        runner: one that is not used for training, with a policy that does not explore. Its environments are reset.
            Its normalisers, if any, should be frozen (`ObservationNormalizer.frozen_copy`).
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
