"""Reading the small files of a run directory, which a stranger may have filled.

Only regular files are opened, so that no FIFO makes a command wait, and only as much is read as a file may have. Knows
no file's meaning.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from plugrad.errors import ConfigError


def read_text(path: Path, max_bytes: int) -> str:
    """The text of a file.

    Args:
        path: of a regular file, or of a link to one.
        max_bytes: a longer one is refused.

    Raises:
        ConfigError: it is missing, no regular file, too long, not UTF-8, or cannot be read; names it.
    """
    try:
        return _bytes(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def read_lines(path: Path, max_bytes: int) -> Iterator[bytes]:
    """The lines of a file, each with its end. A line without an end is the last: whoever writes the file may go on.

    Args:
        path: of a regular file, or of a link to one.
        max_bytes: a longer line is refused.

    Raises:
        ConfigError: it is missing, no regular file, has a longer line, or cannot be read; names it.
    """
    try:
        with _open(path) as file:
            while line := file.readline(max_bytes + 1):
                if len(line) > max_bytes:
                    raise ConfigError(f"{path} has a line of more than {max_bytes} bytes")
                yield line
                if not line.endswith(b"\n"):
                    return  # what is written now is its rest, and no line
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def _bytes(path: Path, max_bytes: int) -> bytes:
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise ConfigError(f"{path} has {size} bytes; at most {max_bytes} are read")
        return file.read(max_bytes + 1)


def _open(path: Path) -> BinaryIO:
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise ConfigError(f"{path} is not a regular file")
