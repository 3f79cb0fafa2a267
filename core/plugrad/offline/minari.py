"""Minari's data sets (https://minari.farama.org) as episodes. Minari is imported when one is asked for."""

from importlib.util import find_spec
from typing import Any, Final

import gymnasium as gym
import numpy as np

from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError, ConfigError, MissingFrameworkError
from plugrad.offline.episode_data import EpisodeData
from plugrad.offline.validation import check_steps
from plugrad.policy.observations import flat_space, stored_space
from plugrad.types import Array

PREFIX: Final = "minari:"


def read_minari(dataset_id: str) -> EpisodeData:
    """Read a data set of Minari that is on this machine.

    Observations that are no Box are flattened, as by an env runner.

    Args:
        dataset_id: such as `"D4RL/pen/human-v2"`.

    Returns:
        Its episodes and spaces.

    Raises:
        MissingFrameworkError: Minari is not installed.
        ConfigError: the data set is not on this machine; nothing is downloaded.
        BatchError: it cannot be read, or its columns do not fit its spaces (`plugrad.offline.validation`).
    """
    if find_spec("minari") is None:
        raise MissingFrameworkError(
            f'{PREFIX}{dataset_id} needs minari: pip install "plugrad[minari]"', requires="minari"
        )
    import minari

    where = f"{PREFIX}{dataset_id}"
    try:
        data = minari.load_dataset(dataset_id)
    except FileNotFoundError as error:
        raise ConfigError(f"{where} is not on this machine: minari download {dataset_id}") from error
    except Exception as error:  # whatever a damaged file leads to
        raise _read_error(where, error) from error
    space = data.observation_space
    stored = stored_space(flat_space(space))
    try:
        episodes = [_episode(each, space, stored, data.action_space) for each in data.iterate_episodes()]
    except Exception as error:
        raise _read_error(where, error) from error
    for each in episodes:
        check_steps(
            f"{where}, episode {each.id_}",
            {"observations": each.observations, "actions": each.actions, "rewards": each.rewards},
            num_observations=len(each) + 1,
            observation_space=stored,
            action_space=data.action_space,
        )
    return EpisodeData(episodes=episodes, observation_space=stored, action_space=data.action_space)


def _read_error(where: str, error: Exception) -> BatchError:
    return BatchError(f"{where} cannot be read: {type(error).__name__}: {str(error)[:200]}")


def _episode(
    found: Any, space: gym.Space[Any], stored: gym.spaces.Box, action_space: gym.Space[Any]
) -> SingleAgentEpisode:
    return SingleAgentEpisode(
        observations=_observations(found.observations, space, len(found.rewards) + 1).astype(stored.dtype),
        actions=found.actions - getattr(action_space, "start", 0),
        rewards=np.asarray(found.rewards, np.float32),
        terminated=bool(found.terminations[-1]),
        truncated=bool(found.truncations[-1]),
        id_=str(found.id),
    )


def _observations(found: Any, space: gym.Space[Any], number: int) -> Array:
    if isinstance(space, gym.spaces.Box):
        return np.asarray(found)
    return np.stack([np.asarray(gym.spaces.flatten(space, _take(found, t))) for t in range(number)])


def _take(columns: Any, t: int) -> Any:
    """Observation `t` of a nested structure of columns."""
    if isinstance(columns, dict):
        return {key: _take(values, t) for key, values in columns.items()}
    return tuple(_take(values, t) for values in columns) if isinstance(columns, tuple) else columns[t]
