"""The state of running episodes, and how a resumed run continues them."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.observations import row_shape
from plugrad.sampling.env_masks import ActionMasks
from plugrad.sampling.episode_metrics import EpisodeMetrics
from plugrad.sampling.rollout import Rollout
from plugrad.sampling.vector_envs import RunningEpisode
from plugrad.types import Array


def get_running_state(rollout: Rollout, metrics: EpisodeMetrics) -> dict[str, Any] | None:
    """The state of the running episodes.

    Args:
        rollout: of the environments.
        metrics: has the numbers, returns and lengths of the episodes.

    Returns:
        A state for `set_running_state`; None if no episode runs, or one cannot be replayed.
    """
    environments = None if rollout.observations is None else rollout.envs.get_running_episodes()
    if rollout.observations is None or environments is None:
        return None
    return {
        **metrics.get_running_state(),
        "observations": rollout.observations.copy(),
        **({} if rollout.masks is None else {Columns.ACTION_MASK: rollout.masks.current.copy()}),
        "policy": rollout.policy.get_state(),
        **({} if rollout.rewards is None else {"rewards": rollout.rewards.get_state()}),
        **({} if rollout.info_metrics is None else {"info_metrics": rollout.info_metrics.get_state()}),
        "environments": environments,
    }


def matches(running: Mapping[str, Any], rollout: Rollout) -> bool:
    """Whether `set_running_state` can take a state.

    Args:
        running: a state of `get_running_state`.
        rollout: of the environments.

    Returns:
        True if the environments can replay, and number and observations are those of the state.
    """
    shape = (rollout.envs.num_envs, *row_shape(rollout.envs.row_space))
    return rollout.envs.can_replay and running["observations"].shape == shape


def set_running_state(running: Mapping[str, Any], rollout: Rollout, metrics: EpisodeMetrics) -> None:
    """Continue running episodes: replay them, and begin new ones, with a warning, where they are not repeated.

    Args:
        running: a state of `get_running_state` that `matches`.
        rollout: of the environments.
        metrics: takes the numbers, returns and lengths of the episodes.
    """
    metrics.set_running_state(running)
    rollout.policy.set_state(running.get("policy", {}))
    if rollout.rewards is not None:
        rollout.rewards.set_state(running.get("rewards", {}))
    if rollout.info_metrics is not None:
        rollout.info_metrics.set_state(running.get("info_metrics", {}))
    observations = np.array(running["observations"])
    episodes = list(rollout.envs.replay(running["environments"]))
    for env, episode in enumerate(episodes):
        if not _is_repeated(env, episode, rollout, running):
            episodes[env], observations[env] = _restart(env, rollout, metrics)
    rollout.masks = _masks_of_replayed(rollout, episodes)
    rollout.observations = observations


def _is_repeated(env: int, episode: RunningEpisode, rollout: Rollout, running: Mapping[str, Any]) -> bool:
    """Whether a replayed environment shows what it showed when it was saved."""
    if episode.observation is None:
        return False
    row = rollout.seen.rows(episode.observation[None])[0]
    is_same = np.array_equal(row, running["observations"][env])
    if Columns.ACTION_MASK not in running:
        return is_same
    mask = np.asarray(episode.info.get(Columns.ACTION_MASK))
    return is_same and np.array_equal(mask, running[Columns.ACTION_MASK][env])


def _restart(env: int, rollout: Rollout, metrics: EpisodeMetrics) -> tuple[RunningEpisode, Array]:
    """Begin a new episode in one environment; its first observation, as the policy sees it."""
    warnings.warn(
        f"environment {env} did not repeat its running episode from the same seed and actions: "
        "it begins a new one; this run may differ from one without interruption",
        stacklevel=4,
    )
    episode = rollout.envs.restart(env)
    raw = np.asarray(episode.observation)[None]
    metrics.begin(env)
    rollout.policy.reset_one(env)
    if rollout.rewards is not None:
        rollout.rewards.reset_one(env)
    if rollout.info_metrics is not None:
        rollout.info_metrics.reset_one(env)
    rollout.seen.check_and_count(raw, np.array([env]))
    return episode, rollout.seen.rows(raw)[0]


def _masks_of_replayed(rollout: Rollout, episodes: Sequence[RunningEpisode]) -> ActionMasks | None:
    infos = [episode.info for episode in episodes]
    if not any(Columns.ACTION_MASK in info for info in infos):
        return None
    masks = rollout.make_masks()
    masks.begin_replayed(infos, [episode.num_steps for episode in episodes])
    return masks
