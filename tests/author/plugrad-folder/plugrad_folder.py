"""A collective of files in a folder that all processes see, on one machine or on several."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep

import numpy as np

from plugrad.collective import Collective, Membership, Place, left_error
from plugrad.errors import CollectiveError
from plugrad.types import Array

VARIABLE = "PLUGRAD_FOLDER"


def folder_of(key: str) -> Path:
    return Path(os.environ.get(VARIABLE) or tempfile.gettempdir(), f"plugrad-{key}")


class Folder(Collective):
    @classmethod
    def why_not(cls, place: Place) -> str | None:
        if place.num_hosts > 1 and VARIABLE not in os.environ:
            return f"{place.num_hosts} machines need a folder that all see: set {VARIABLE} to its path"
        return None

    def __init__(self, membership: Membership) -> None:
        super().__init__(membership)
        self.folder = folder_of(membership.key)
        self.count = 0

    def contact(self) -> bytes:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        return b""

    def enter(self, contacts: Sequence[bytes]) -> None:
        self.barrier()

    def sum(self, array: Array) -> Array:
        self.count += 1
        self.bring(array)
        deadline = self.deadline()
        arrays = [self.take(rank, deadline) for rank in range(self.size)]
        for rank, other in enumerate(arrays):
            if (other.shape, other.dtype) != (array.shape, array.dtype):
                found, expected = f"{other.dtype} {other.shape}", f"{array.dtype} {array.shape}"
                raise CollectiveError(f"learner {rank} brought {found}, not {expected}", rank=rank)
        self.path(self.rank, self.count - 1).unlink(missing_ok=True)  # all have brought the next one
        total = arrays[0]
        for other in arrays[1:]:
            total += other
        return total

    def path(self, rank: int, count: int) -> Path:
        return self.folder / f"{rank}-{count}.npy"

    def bring(self, array: Array) -> None:
        path = self.path(self.rank, self.count)
        half = path.with_suffix(".half")
        with half.open("wb") as file:
            np.save(file, array)
        half.rename(path)  # in one step: who sees it sees all of it

    def take(self, rank: int, deadline: float) -> Array:
        path = self.path(rank, self.count)
        while not path.exists():
            if self.has_left(rank) and not path.exists():
                raise left_error(rank)
            self.check(deadline, rank)
            sleep(0.0005)
        return np.load(path, allow_pickle=False)

    def has_left(self, rank: int) -> bool:
        return (self.folder / f"{rank}-left").exists()

    def leave(self) -> None:
        super().leave()
        with suppress(FileNotFoundError):  # cleaned up
            (self.folder / f"{self.rank}-left").touch()

    def close(self) -> None:
        self.leave()
        if all(self.has_left(rank) for rank in range(self.size)):
            self.clean_up(self.membership.key)

    @classmethod
    def clean_up(cls, key: str) -> None:
        shutil.rmtree(folder_of(key), ignore_errors=True)
