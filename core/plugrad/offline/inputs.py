"""What the setting `input_` of an offline algorithm names, as episodes."""

from collections.abc import Sequence
from functools import reduce

from plugrad.errors import ConfigError
from plugrad.offline.episode_data import EpisodeData
from plugrad.offline.episode_files import read_episodes
from plugrad.offline.minari import PREFIX, read_minari


def load_episodes(input_: str | Sequence[str] | None) -> EpisodeData:
    """The episodes of one source or of several.

    Args:
        input_: a directory that `plugrad record` or `save_episodes` wrote, `"minari:<data set id>"` of a data set
            that Minari has on this machine, or a list of these.

    Raises:
        ConfigError: nothing is named.
        MissingFrameworkError: Minari is named and not installed.
        CheckpointError: a directory cannot be read.
        BatchError: the sources are of different spaces.
    """
    sources = [input_] if isinstance(input_, str) else list(input_ or ())
    if not sources:
        raise ConfigError(
            "input_ names no recorded episodes: give a directory that 'plugrad record RUN -o DIR' wrote, "
            "or 'minari:<data set id>'"
        )
    found = [(source, _read(source)) for source in sources]
    return reduce(lambda one, each: one.joined(each[1], where=each[0]), found[1:], found[0][1])


def _read(source: str) -> EpisodeData:
    return read_minari(source.removeprefix(PREFIX)) if source.startswith(PREFIX) else read_episodes(source)
