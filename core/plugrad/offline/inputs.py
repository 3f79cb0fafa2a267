"""Load the episodes that the setting `input_` of an offline algorithm names."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

import gymnasium as gym
import numpy as np

from plugrad.action_rows import action_rows
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError, ConfigError, MissingFrameworkError
from plugrad.observations import model_space
from plugrad.offline.episode_columns import check_steps
from plugrad.offline.episode_data import EpisodeData, read_episodes
from plugrad.policy.observations import ObservationEncoder

PREFIX: Final = "minari:"


def read_minari(dataset_id: str) -> EpisodeData:
    """Read a data set of Minari that is on this machine.

    Observations are rows, as those of an env runner.

    Args:
        dataset_id: such as `"D4RL/pen/human-v2"`.

    Returns:
        Its episodes and spaces.

    Raises:
        MissingFrameworkError: Minari is not installed.
        ConfigError: the data set is not on this machine; nothing is downloaded.
        BatchError: it cannot be read, or its columns do not fit its spaces (`plugrad.offline.episode_columns`).
    """
    if find_spec("minari") is None:
        raise MissingFrameworkError(
            f'{PREFIX}{dataset_id} needs minari: pip install "plugrad[minari]"', requires="minari"
        )
    where = f"{PREFIX}{dataset_id}"
    data = _load_dataset(where, dataset_id)
    encoder = ObservationEncoder(data.observation_space)
    observation_space = model_space(data.observation_space)
    try:
        episodes = [_episode(each, encoder, data.action_space) for each in data.iterate_episodes()]
    except Exception as error:
        raise _read_error(where, error) from error
    for each in episodes:
        check_steps(
            f"{where}, episode {each.id_}",
            {"observations": each.observations, "actions": each.actions, "rewards": each.rewards},
            num_observations=len(each) + 1,
            observation_space=observation_space,
            action_space=data.action_space,
        )
    return EpisodeData(episodes=episodes, observation_space=observation_space, action_space=data.action_space)


def _load_dataset(where: str, dataset_id: str) -> Any:
    import minari

    try:
        return minari.load_dataset(dataset_id)
    except FileNotFoundError as error:
        raise ConfigError(f"{where} is not on this machine: minari download {dataset_id}") from error
    except Exception as error:  # whatever a damaged file leads to
        raise _read_error(where, error) from error


def _read_error(where: str, error: Exception) -> BatchError:
    return BatchError(f"{where} cannot be read: {type(error).__name__}: {str(error)[:200]}")


def _episode(found: Any, encoder: ObservationEncoder, action_space: gym.Space[Any]) -> SingleAgentEpisode:
    return SingleAgentEpisode(
        observations=encoder.encode(found.observations)[0],
        actions=action_rows(action_space, found.actions),
        rewards=np.asarray(found.rewards, np.float32),
        terminated=bool(found.terminations[-1]),
        truncated=bool(found.truncations[-1]),
        id_=str(found.id),
    )


# --- what the setting input_ names ---


def load_episodes(input_: str | Sequence[str] | None, *, allow_other_bounds: bool = False) -> EpisodeData:
    """Load the episodes of one source or of several.

    Args:
        input_: a directory that `plugrad record` or `save_episodes` wrote, `"minari:<data set id>"` of a data set
            that Minari has on this machine, or a list of these.
        allow_other_bounds: read sources whose actions or images have other bounds than those of the first.

    Returns:
        All episodes, with their spaces.

    Raises:
        ConfigError: `input_` is empty, or a data set is not on this machine.
        MissingFrameworkError: Minari is not installed.
        CheckpointError: a directory cannot be read.
        BatchError: the sources have different spaces, or their columns are not valid.
    """
    sources = [input_] if isinstance(input_, str) else list(input_ or ())
    if not sources:
        raise ConfigError(
            "input_ names no recorded episodes: give a directory that 'plugrad record RUN -o DIR' wrote, "
            "or 'minari:<data set id>'"
        )
    data = _read(sources[0])
    for source in sources[1:]:
        data = data.concat(_read(source), where=source, allow_other_bounds=allow_other_bounds)
    return data


def _read(source: str) -> EpisodeData:
    return read_minari(source.removeprefix(PREFIX)) if source.startswith(PREFIX) else read_episodes(source)
