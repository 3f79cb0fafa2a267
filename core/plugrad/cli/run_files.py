"""Reading the text files of a run directory and files of settings. Either may come from a stranger.

Only regular files are opened, so that no FIFO makes a command wait, and the length of files and lines is limited.
Settings are checked before anything is built of them; nothing that they name is called here.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.config.from_files import check_size
from plugrad.config.serialize import parse_json, parse_toml
from plugrad.errors import ConfigError, PlugradError

AnyConfig = TypeVar("AnyConfig", bound=AlgorithmConfig)
MAX_SETTINGS_BYTES = 2**19


def read_text(path: Path, max_bytes: int) -> str:
    """Read a file of UTF-8 text.

    Args:
        path: a regular file, or a link to one.
        max_bytes: a longer file is refused.

    Returns:
        The text.

    Raises:
        ConfigError: the file is missing, no regular file, too long, not UTF-8, or cannot be read; names it.
    """
    try:
        return read_bytes(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Read a whole file.

    Args:
        path: a regular file, or a link to one.
        max_bytes: a longer file is refused.

    Returns:
        Its content.

    Raises:
        ConfigError: the file is missing, no regular file, too long, or cannot be read; names it.
    """
    try:
        with _open(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(max_bytes + 1) if size <= max_bytes else b""
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    if max(size, len(data)) > max_bytes:
        raise ConfigError(f"{path} has {max(size, len(data))} bytes; at most {max_bytes} are read")
    return data


def read_end(path: Path, max_bytes: int) -> bytes:
    """Read the end of a file.

    Args:
        path: a regular file, or a link to one.
        max_bytes: how much is read at most.

    Returns:
        The last bytes; the whole file if it is no longer.

    Raises:
        ConfigError: the file is missing, no regular file, or cannot be read; names it.
    """
    try:
        with _open(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
            return file.read(max_bytes)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def read_lines(path: Path, max_bytes: int) -> Iterator[bytes]:
    """Read a file line by line.

    Args:
        path: a regular file, or a link to one.
        max_bytes: a longer line is refused.

    Yields:
        Each line with its newline. A line without one is the last: another process may be writing it.

    Raises:
        ConfigError: the file is missing, no regular file, has a longer line, or cannot be read; names it.
    """
    try:
        with _open(path) as file:
            while line := file.readline(max_bytes + 1):
                if len(line) > max_bytes:
                    raise ConfigError(f"{path} has a line of more than {max_bytes} bytes")
                yield line
                if not line.endswith(b"\n"):
                    return  # what comes after it is the rest of this line
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def read_table(path: Path) -> dict[str, Any]:
    """The content of a file of settings, unchecked. It is JSON if the name ends in .json, else TOML.

    Raises:
        ConfigError: the file cannot be read or parsed; names it.
    """
    text = read_text(path, MAX_SETTINGS_BYTES)
    try:
        return _parse(path, text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_settings(path: Path, config_class: type[AnyConfig], *, stored_bytes: int = 0) -> AnyConfig:
    """Read a config from a file.

    Args:
        path: JSON if it ends in .json, else TOML.
        config_class: whose settings they are; a base class reads those of each algorithm.
        stored_bytes: see `plugrad.config.from_files.check_size`.

    Returns:
        The config.

    Raises:
        ConfigError: the file cannot be read or parsed, a setting is refused, or the settings are too large; names
            the file.
        AlgorithmNotFoundError: the file names an algorithm that is not installed.
    """
    text = read_text(path, MAX_SETTINGS_BYTES)
    try:
        check_size(_parse(path, text), stored_bytes=stored_bytes)
        return config_class.from_json(text) if _is_json(path) else config_class.from_toml(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", **error.facts) from error
    except PlugradError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{path} holds something that does not fit: {type(error).__name__}: {error}"
        ) from error


def _is_json(path: Path) -> bool:
    return path.suffix == ".json"


def _parse(path: Path, text: str) -> dict[str, Any]:
    return parse_json(text) if _is_json(path) else parse_toml(text)


def _open(path: Path) -> BinaryIO:
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise ConfigError(f"{path} is not a regular file")
