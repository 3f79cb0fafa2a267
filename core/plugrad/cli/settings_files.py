"""Files of settings, which may be a stranger's: `config.toml` of a run, and what `--config` names.

Reads and checks; calls nothing that a file names, and builds nothing.
"""

from pathlib import Path
from typing import Any, TypeVar

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.run_files import read_text
from plugrad.config.serialize import parse_json, parse_toml
from plugrad.config.size_limits import check_size
from plugrad.errors import ConfigError, PlugradError

AnyConfig = TypeVar("AnyConfig", bound=AlgorithmConfig)
MAX_BYTES = 2**19


def read_table(path: Path) -> dict[str, Any]:
    """What a file of settings says, as data that nobody has checked.

    Raises:
        ConfigError: it cannot be read or is no such file.
    """
    return _parsed(path, read_text(path, MAX_BYTES))


def _parsed(path: Path, text: str) -> dict[str, Any]:
    return parse_json(text) if path.suffix == ".json" else parse_toml(text)


def read_settings(path: Path, config_class: type[AnyConfig], *, stored_bytes: int = 0) -> AnyConfig:
    """The config that a file holds.

    Args:
        path: JSON if it ends in .json, else TOML.
        config_class: whose settings they are.
        stored_bytes: see `plugrad.config.size_limits.check_size`.

    Raises:
        ConfigError: it cannot be read, is no such file, or asks for more than a file may; names it.
        AlgorithmNotFoundError: it is of an algorithm that is not installed.
    """
    text = read_text(path, MAX_BYTES)
    is_json = path.suffix == ".json"
    try:
        check_size(_parsed(path, text), stored_bytes=stored_bytes)
        return config_class.from_json(text) if is_json else config_class.from_toml(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", **error.facts) from error
    except PlugradError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{path} holds something that does not fit: {type(error).__name__}: {error}"
        ) from error
