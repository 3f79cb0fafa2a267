"""A policy as one file: a safetensors file whose header has the description of the policy as strict JSON.

`docs/policy-format.md` describes it. Nothing in it is code, and every byte is checked before it is used.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from plugrad.checkpoint import formats
from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointUnsafeError,
    CheckpointVersionError,
)
from plugrad.types import Array, StrPath

FORMAT: Final = "plugrad policy"
FORMAT_VERSION: Final = 1

_BEGIN: Final = f'{{"{formats.TEXTS}":{{"sha256":"'.encode()
_HASH: Final = slice(8 + len(_BEGIN), 8 + len(_BEGIN) + 64)
"""Where the hash is, in this and in all later versions of the format."""
_KEYS: Final = {"sha256", "format", "format_version", "plugrad_version", "policy"}


@dataclass(frozen=True)
class PolicyFile:
    """A file that was read, or will be written.

    Attributes:
        description: plain data, see `docs/policy-format.md`.
        arrays: by name: `weights/<parameter>`, `coefficients/<setting>`, `normalizer/mean` and `normalizer/m2`.
        path: where it was read.
        plugrad_version: that wrote it.
    """

    description: Mapping[str, Any]
    arrays: Mapping[str, Array]
    path: Path = Path()
    plugrad_version: str = ""

    def group(self, name: str) -> dict[str, Array]:
        """The arrays `<name>/...`, without that prefix."""
        prefix = f"{name}/"
        return {
            each.removeprefix(prefix): self.arrays[each] for each in self.arrays if each.startswith(prefix)
        }


def write_policy_file(path: StrPath, file: PolicyFile) -> None:
    """Write a policy file; one of this name is replaced all at once.

    Args:
        path: the file. Its directory is made if it is missing.
        file: its content.

    Raises:
        CheckpointError: the content cannot be written, or the disk refused; a file that was there is as it was.
    """
    data = _pack(file)
    with disk_errors("write a policy to", path):
        replace_file(Path(path), data)


def _pack(file: PolicyFile) -> bytearray:
    texts = {
        "sha256": "0" * 64,
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "plugrad_version": version("plugrad"),
        "policy": formats.dumps(formats.encode(file.description, None, "policy")).decode().rstrip(),
    }
    data = formats.pack(file.arrays, texts)
    data[_HASH] = _hash_of(data)
    return data


def _hash_of(data: bytearray) -> bytes:
    """The hash of a file: of its bytes with zeros in place of the hash."""
    digest = hashlib.sha256(data[: _HASH.start])
    digest.update(b"0" * 64)
    digest.update(memoryview(data)[_HASH.stop :])
    return digest.hexdigest().encode()


def read_policy_file(path: StrPath) -> PolicyFile:
    """Read a policy file. Nothing in it is run, so a stranger's can be read too.

    Args:
        path: the file, or a link to it.

    Returns:
        Its content; the arrays are writable.

    Raises:
        CheckpointError: it cannot be opened, or is no policy file.
        CheckpointCorruptError: it is damaged.
        CheckpointUnsafeError: it is no regular file, or larger than the memory.
        CheckpointVersionError: a newer plugrad wrote it; the message says which.
    """
    with disk_errors("read a policy from", path):
        data = _read(Path(path))
    try:
        return _unpack(data, Path(path))
    except (ValueError, CheckpointUnsafeError) as error:
        kind = CheckpointUnsafeError if isinstance(error, CheckpointUnsafeError) else CheckpointCorruptError
        raise kind(f"{path} is damaged: {error}", path=str(path)) from error


def _read(path: Path) -> bytearray:
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise CheckpointUnsafeError(f"{path} is not a regular file", path=str(path))
        if file.read(_HASH.start)[8:] != _BEGIN:
            raise CheckpointError(f"{path} is not a policy file of plugrad (see Policy.save)", path=str(path))
        file.seek(0)
        try:
            data = bytearray(found.st_size)
        except MemoryError:
            raise CheckpointUnsafeError(
                f"{path} has {found.st_size} bytes, for which there is no memory", path=str(path)
            ) from None
        del data[file.readinto(data) :]
        return data


def _unpack(data: bytearray, path: Path) -> PolicyFile:
    if data[_HASH] != _hash_of(data):
        raise ValueError("its sha256 does not match")
    arrays, texts = formats.unpack(data)
    _check_format(texts, path)
    description = formats.loads(texts["policy"].encode("ascii"), formats.Decoder())
    if not isinstance(description, dict):
        raise ValueError("its description is no object")
    return PolicyFile(description, arrays, path, texts["plugrad_version"])


def _check_format(texts: Mapping[str, str], path: Path) -> None:
    number = texts.get("format_version", "")
    if texts.get("format") != FORMAT or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise ValueError(f"it does not say that it is a {FORMAT} and of which version")
    if int(number) > FORMAT_VERSION:
        writer = texts.get("plugrad_version", "")[:40]
        raise CheckpointVersionError(
            f"{path} has format version {number}, written by plugrad {writer}; this plugrad {version('plugrad')} "
            f'reads up to {FORMAT_VERSION}: pip install "plugrad>={writer}"',
            path=str(path),
            found=int(number),
            supported=FORMAT_VERSION,
        )
    if texts.keys() != _KEYS or number != str(FORMAT_VERSION):
        raise ValueError(f"its header has the keys {sorted(texts)}")
