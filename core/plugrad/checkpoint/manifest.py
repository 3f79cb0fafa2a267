"""`metadata.json`: the metadata of a save, the size and sha256 of its other files, and its own hash.

The last line is `"sha256":"..."}` over all bytes before it. This line and the three keys before `metadata` are the same
in all formats to come, so that any plugrad can tell a newer checkpoint from a damaged one.
"""

import hashlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from plugrad.checkpoint import strict_json, tree
from plugrad.checkpoint.layout import DATA, FileEntry, block_number, is_content_name
from plugrad.errors import CheckpointError, CheckpointUnsafeError, CheckpointVersionError

FORMAT: Final = "plugrad checkpoint"
FORMAT_VERSION: Final = 3
"""The newest that is read. A save is of the oldest version that can hold it, which older versions of plugrad read too:
1, with blocks 2; 3 if its caller says so."""
MAX_BYTES: Final = 2 * 2**20
"""The limit of the file. Parsing takes some twenty times as much memory."""

_KEYS: Final = {"format", "format_version", "plugrad_version", "metadata", "files"}


@dataclass(frozen=True)
class Manifest:
    """The content of `metadata.json`.

    Attributes:
        metadata: what the caller of `save_checkpoint` gave.
        files: every other file of the save by name.
        plugrad_version: the version that wrote it.
        format_version: the oldest version that can hold what the caller saves, besides blocks.
    """

    metadata: dict[str, Any]
    files: dict[str, FileEntry]
    plugrad_version: str
    format_version: int = 1

    @classmethod
    def of(cls, metadata: Mapping[str, Any], files: dict[str, FileEntry], format_version: int) -> "Manifest":
        """The manifest of a new save.

        Args:
            metadata: see the class.
            files: see the class.
            format_version: see the class.

        Returns:
            The manifest, with the version of this plugrad.
        """
        return cls(dict(metadata), files, _own_version(), format_version)

    @property
    def _has_blocks(self) -> bool:
        return any(block_number(name) is not None for name in self.files)

    def to_bytes(self) -> bytes:
        """The bytes of the file.

        Raises:
            CheckpointError: the metadata is no plain data, or takes more than `MAX_BYTES`.
        """
        fields = {
            "format": FORMAT,
            "format_version": max(self.format_version, 2 if self._has_blocks else 1),
            "plugrad_version": self.plugrad_version,
            "metadata": tree.encode(self.metadata, None, "metadata"),
            "files": {name: {"size": e.size, "sha256": e.sha256} for name, e in self.files.items()},
        }
        body = strict_json.dumps(fields).removesuffix(b"}\n") + b",\n"
        if len(body) > MAX_BYTES - 100:
            raise CheckpointError(
                f"the metadata takes {len(body)} bytes as JSON: a checkpoint keeps at most {MAX_BYTES}"
            )
        return body + _tail(body)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> "Manifest":
        """Read the bytes of the file.

        Raises:
            ValueError: the file is damaged or no manifest.
            CheckpointVersionError: it is of a newer format.
            CheckpointUnsafeError: it lists a file with a name that no checkpoint has.
        """
        body = data[: -len(_tail(b""))]
        if not body or data != body + _tail(body):
            raise ValueError("its own sha256 does not match")
        fields = strict_json.loads(data, tree.Decoder())
        _check_format(fields)
        if fields.keys() - {"sha256"} != _KEYS:
            raise ValueError(f"its keys are {sorted(fields)}")
        return cls(_mapping(fields["metadata"]), _read_files(fields["files"]), str(fields["plugrad_version"]))


@cache
def _own_version() -> str:
    return importlib.metadata.version("plugrad")


def _tail(body: bytes | bytearray) -> bytes:
    return b'"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def _check_format(fields: Any) -> None:
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise ValueError(f"it does not say that it is a {FORMAT}")
    version = fields.get("format_version")
    if type(version) is not int or version < 1:
        raise ValueError(f"its format_version is {str(version)[:40]}")
    if version > FORMAT_VERSION:
        writer = str(fields.get("plugrad_version"))[:40]
        raise CheckpointVersionError(
            f"has format version {version}, written by plugrad {writer}; this plugrad "
            f"{_own_version()} reads up to {FORMAT_VERSION}: "
            f'pip install "plugrad>={writer}"',
            found=version,
            supported=FORMAT_VERSION,
        )


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"an object is expected, not {str(value)[:40]}")
    return value


def _read_files(value: Any) -> dict[str, FileEntry]:
    files = {}
    for name, entry in _mapping(value).items():
        if not is_content_name(name):
            raise CheckpointUnsafeError(
                f"lists a file {name[:100]!r}, which is not a name that plugrad gives"
            )
        files[name] = _read_entry(_mapping(entry))
    if DATA not in files:
        raise ValueError(f"it lists no {DATA}")
    return files


def _read_entry(entry: dict[str, Any]) -> FileEntry:
    size, sha256 = entry.get("size"), entry.get("sha256")
    if len(entry) != 2 or type(size) is not int or size < 0 or not isinstance(sha256, str):
        raise ValueError(f"a file's entry is {str(entry)[:100]}")
    return FileEntry(size, sha256)
