"""Load the episodes that the setting `input_` of an offline algorithm names."""

from collections.abc import Sequence

from plugrad.errors import ConfigError
from plugrad.offline.episode_data import EpisodeData
from plugrad.offline.episode_files import read_episodes
from plugrad.offline.minari import PREFIX, read_minari


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
