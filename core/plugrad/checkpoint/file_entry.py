"""`FileEntry`: what a manifest says of a file."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class FileEntry:
    """A file in the manifest: `size` in bytes, `sha256` in lower-case hexadecimal."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes | bytearray) -> "FileEntry":
        """The entry of these bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())
