"""The contestants: the interface of a contestant, and the module of each.

The module of a contestant is imported only in the process that runs it, so frameworks never share a process.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path

from workload import Batch, Cell, Weights


class Contestant:
    """One implementation of a cell's update, built by `make(cell, seed, option)` of its module.

    Building does not include the first update. Compilation happens in the first `update`.
    """

    batch: Batch
    epochs: int | None = None
    """Instead of the cell's; only plugrad looks at it."""

    def describe(self) -> str:
        """Describe in words what runs. Called after the first update."""
        raise NotImplementedError

    def prepare(self, batch: Batch) -> None:
        """Store the data for `update`. Not timed."""
        self.batch = batch

    def update(self, shuffle: bool) -> None:
        """Do one whole update, from numpy columns to new weights. Timed."""
        raise NotImplementedError

    def weights(self) -> Weights | None:
        """Return the weights by the names of `workload.initial_weights`, or None if they cannot be compared."""
        return None

    def count(self) -> int | None:
        """Return how often the loss function was called so far, or None if it is not counted."""
        return None

    def save(self, path: Path) -> None:
        """Save everything that is needed to continue into the existing directory `path`. Timed."""
        raise NotImplementedError

    def restore(self, path: Path) -> None:
        """Load what `save` wrote. Timed."""
        raise NotImplementedError


@dataclass(frozen=True)
class Entry:
    """The module and options of a contestant.

    Args:
        title: as printed.
        module: the module with `make`.
        option: passed to `make`.
        peer: whether it needs the peers' venv.
    """

    title: str
    module: str
    option: str = ""
    peer: bool = False


ENTRIES = {
    "plugrad-torch-none": Entry("plugrad torch, compile=none", "contestant_plugrad", "torch:none"),
    "plugrad-torch-recorded": Entry(
        "plugrad torch, compile=auto, recorded steps", "contestant_plugrad", "torch:recorded"
    ),
    "plugrad-torch-complete": Entry(
        "plugrad torch, compile=complete_update", "contestant_plugrad", "torch:complete_update"
    ),
    "plugrad-tf2-auto": Entry("plugrad tf2, compile=auto", "contestant_plugrad", "tf2:auto"),
    "plugrad-jax-auto": Entry("plugrad jax, compile=auto", "contestant_plugrad", "jax:auto"),
    "twin-torch": Entry("hand-written torch, eager, tuned", "reference_torch"),
    "twin-torch-compiled": Entry("hand-written torch, compiled step", "reference_torch_compiled"),
    "twin-tf2": Entry("hand-written tf2, whole update in XLA", "reference_tf2"),
    "twin-jax": Entry("hand-written jax, whole update in XLA", "reference_jax"),
    "sb3": Entry("stable-baselines3, PPO.train", "peers_sb3", peer=True),
    "rllib": Entry("RLlib, Learner.update", "peers_rllib", peer=True),
}
PLUGRAD = [name for name, entry in ENTRIES.items() if entry.module == "contestant_plugrad"]


def make(name: str, cell: Cell, seed: int) -> Contestant:
    """Build the contestant of this name in this process."""
    entry = ENTRIES[name]
    contestant: Contestant = importlib.import_module(entry.module).make(cell, seed, entry.option)
    return contestant
