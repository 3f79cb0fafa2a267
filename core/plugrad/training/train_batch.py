"""`TrainBatch`: samples that are learned from together; `StepCounts`: what became of the steps of all of them."""

from collections.abc import Sequence
from typing import Any

from plugrad.sampling.sample import Sample


class TrainBatch:
    """Samples that are learned from together.

    Args:
        samples: of env runners, at least one.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = tuple(samples)

    def __repr__(self) -> str:
        return f"TrainBatch({self.num_env_steps} steps of {len(self.samples)} samples)"

    @property
    def episodes(self) -> list[Any]:
        """The episodes and chunks of all samples."""
        return [episode for sample in self.samples for episode in sample.episodes]

    @property
    def num_env_steps(self) -> int:
        """Environment steps of all samples."""
        return sum(sample.num_env_steps for sample in self.samples)

    def staleness(self, weights_version: int) -> list[int]:
        """Updates between the weights that acted in each sample and those that learn.

        Args:
            weights_version: of the weights that learn.
        """
        return [weights_version - sample.weights_version for sample in self.samples]


class StepCounts:
    """What became of the environment steps that were sampled: `sampled = trained + waiting + dropped`, always.

    A step counts as trained once, however often it is learned from.

    Attributes:
        trained: steps of batches that an update learned from.
        dropped: steps of batches that no update will learn from.
    """

    def __init__(self) -> None:
        self.trained = self.dropped = 0
        self._waiting: dict[int, Sample] = {}

    @property
    def waiting(self) -> int:
        """Steps that were neither trained nor dropped yet."""
        return sum(sample.num_env_steps for sample in self._waiting.values())

    @property
    def sampled(self) -> int:
        """All steps."""
        return self.trained + self.waiting + self.dropped

    def add(self, sample: Sample) -> None:
        """Count a new sample: its steps wait."""
        self._waiting[id(sample)] = sample  # kept, so that no other has this id meanwhile

    def is_waiting(self, sample: Sample) -> bool:
        """Whether the steps of a sample were neither trained nor dropped yet."""
        return id(sample) in self._waiting

    def add_restored(self, sample: Sample) -> None:
        """Let a sample that waited when the run was saved wait again, which `set_state` counted as dropped."""
        self.dropped -= sample.num_env_steps
        self.add(sample)

    def train(self, batch: TrainBatch) -> None:
        """Count the steps of a batch as trained, unless they are already."""
        self.trained += self._remove(batch)

    def drop(self, batch: TrainBatch) -> None:
        """Count the steps of a batch as dropped, unless they were trained or dropped before."""
        self.dropped += self._remove(batch)

    def _remove(self, batch: TrainBatch) -> int:
        found = [self._waiting.pop(id(sample), None) for sample in batch.samples]
        return sum(sample.num_env_steps for sample in found if sample is not None)

    def get_state(self) -> dict[str, int]:
        """The counts. A resumed run counts steps that wait as dropped, until `add_restored`."""
        return {"trained": self.trained, "dropped": self.dropped, "waiting": self.waiting}

    def set_state(self, state: dict[str, int]) -> None:
        """Go on from a state of `get_state`."""
        self._waiting = {}
        self.trained, self.dropped = state["trained"], state["dropped"] + state["waiting"]
