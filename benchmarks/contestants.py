"""Who is measured: what a contestant is, and where each of them lives.

A contestant's room is imported only in the process that runs it, by name: frameworks never share a process.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path

from workload import Batch, Cell, Weights


class Contestant:
    """One way to do the update of a cell; built by `make(cell, seed, option)` of its room.

    Building excludes the first update; compilation belongs to the first `update`.
    """

    batch: Batch
    epochs: int | None = None
    """Instead of the cell's; only plugrad looks at it."""

    def describe(self) -> str:
        """What really runs, in words; asked after the first update."""
        raise NotImplementedError

    def prepare(self, batch: Batch) -> None:
        """Put the data where `update` finds it; not timed."""
        self.batch = batch

    def update(self, shuffle: bool) -> None:
        """One whole update, from numpy columns to finished weights; timed."""
        raise NotImplementedError

    def weights(self) -> Weights | None:
        """The weights by the names of `workload.initial_weights`; None if they cannot be compared."""
        return None

    def count(self) -> int | None:
        """How often the loss function was called so far; None if it is not counted."""
        return None

    def save(self, path: Path) -> None:
        """Write all that is needed to go on into the directory `path`, which is there; timed."""
        raise NotImplementedError

    def restore(self, path: Path) -> None:
        """Take over what `save` wrote; timed."""
        raise NotImplementedError


@dataclass(frozen=True)
class Entry:
    """Where a contestant lives.

    Args:
        title: as printed.
        room: the module with `make`.
        option: passed to `make`.
        peer: whether it needs the peers' venv.
    """

    title: str
    room: str
    option: str = ""
    peer: bool = False


ENTRIES = {
    "plugrad-torch-none": Entry("plugrad torch, compile=none", "contestant_plugrad", "torch:none"),
    "plugrad-torch-complete": Entry(
        "plugrad torch, compile=complete_update", "contestant_plugrad", "torch:complete_update"
    ),
    "plugrad-tf2-auto": Entry("plugrad tf2, compile=auto", "contestant_plugrad", "tf2:auto"),
    "twin-torch": Entry("hand-written torch, eager, tuned", "reference_torch"),
    "twin-torch-compiled": Entry("hand-written torch, compiled step", "reference_torch_compiled"),
    "twin-tf2": Entry("hand-written tf2, whole update in XLA", "reference_tf2"),
    "sb3": Entry("stable-baselines3, PPO.train", "peers_sb3", peer=True),
    "rllib": Entry("RLlib, Learner.update", "peers_rllib", peer=True),
}
PLUGRAD = [name for name, entry in ENTRIES.items() if entry.room == "contestant_plugrad"]


def make(name: str, cell: Cell, seed: int) -> Contestant:
    """The contestant of this name, built in this process."""
    entry = ENTRIES[name]
    contestant: Contestant = importlib.import_module(entry.room).make(cell, seed, entry.option)
    return contestant
