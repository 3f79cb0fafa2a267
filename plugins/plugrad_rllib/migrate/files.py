"""The files below the paths that were given, which may come from a stranger."""

import os
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from tokenize import detect_encoding

from plugrad.cli.run_files import read_bytes
from plugrad.errors import PlugradError

MAX_PROGRAM_BYTES = 2**20
"""A longer program is not read. The longest file of RLlib has 300 KB."""
Left = Callable[[Path, str], None]
"""Is told of a path that is left as it is, and why."""


def regular_files(folder: Path, name_ends: str, left: Left) -> Iterator[Path]:
    """The regular files below a folder whose names have this end, sorted. No link is followed.

    Args:
        folder: where they are.
        name_ends: such as ".py".
        left: told of other things with such names, and of folders that cannot be read.
    """
    rest = [folder]
    while rest:
        inner = rest.pop()
        try:
            entries = sorted(os.scandir(inner), key=lambda each: each.name)
        except OSError as error:
            left(inner, f"cannot be read: {error.strerror or error}")
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) or not entry.name.endswith(name_ends):
                continue
            if entry.is_file(follow_symlinks=False):
                yield Path(entry)
            else:
                left(Path(entry), f"is {'a link' if entry.is_symlink() else 'not a regular file'}")
        rest += [Path(each) for each in reversed(entries) if each.is_dir(follow_symlinks=False)]


def read_program_text(path: Path) -> tuple[str, str]:
    """The text of a program with its line ends, and its encoding.

    Args:
        path: a regular file, or a link to one.

    Returns:
        Both.

    Raises:
        ConfigError: it is no regular file, too long, or cannot be read.
        PlugradError: it is no text in the encoding that it says.
    """
    data = read_bytes(path, MAX_PROGRAM_BYTES)
    try:
        encoding, _ = detect_encoding(BytesIO(data).readline)
        text = data.decode(encoding)
        text.encode(encoding)  # some encodings only decode
    except (SyntaxError, ValueError, LookupError) as error:
        raise PlugradError(
            f"{path} is no text in the encoding that it says, or else in UTF-8: {error}"
        ) from error
    return text, encoding
