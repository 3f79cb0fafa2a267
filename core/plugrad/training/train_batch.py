"""`TrainBatch`: samples that are trained on together; `StepCounts`: counts of trained, waiting and dropped steps."""

from collections.abc import Sequence
from typing import Any

from plugrad.sampling.sample import Sample


class TrainBatch:
    """Samples that are trained on together.

    Args:
        samples: samples of env runners, at least one.
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
        """The number of updates between the weights that acted in each sample and those that learn.

        Args:
            weights_version: the version of the weights that learn.
        """
        return [weights_version - sample.weights_version for sample in self.samples]


class StepCounts:
    """Counts sampled environment steps: `sampled = trained + waiting + dropped`.

    A step counts as trained only once, even if it is used several times.

    Attributes:
        trained: steps of batches that were trained on.
        dropped: steps of batches that will not be trained on.
    """

    def __init__(self) -> None:
        self.trained = self.dropped = 0
        self._waiting: dict[int, Sample] = {}

    @property
    def waiting(self) -> int:
        """Steps that were not trained or dropped yet."""
        return sum(sample.num_env_steps for sample in self._waiting.values())

    @property
    def sampled(self) -> int:
        """All steps."""
        return self.trained + self.waiting + self.dropped

    def add(self, sample: Sample) -> None:
        """Count a new sample: its steps wait."""
        self._waiting[id(sample)] = sample  # kept, so that no other sample gets this id meanwhile

    def is_waiting(self, sample: Sample) -> bool:
        """Whether the steps of a sample were not trained or dropped yet."""
        return id(sample) in self._waiting

    def add_restored(self, sample: Sample) -> None:
        """Count a restored sample, which `set_state` counted as dropped, as waiting again."""
        self.dropped -= sample.num_env_steps
        self.add(sample)

    def train(self, batch: TrainBatch) -> None:
        """Count the steps of a batch as trained, unless they already are."""
        self.trained += self._remove(batch)

    def drop(self, batch: TrainBatch) -> None:
        """Count the steps of a batch as dropped, unless they were trained or dropped before."""
        self.dropped += self._remove(batch)

    def _remove(self, batch: TrainBatch) -> int:
        found = [self._waiting.pop(id(sample), None) for sample in batch.samples]
        return sum(sample.num_env_steps for sample in found if sample is not None)

    def get_state(self) -> dict[str, int]:
        """The counts. A resumed run counts waiting steps as dropped until `add_restored`."""
        return {"trained": self.trained, "dropped": self.dropped, "waiting": self.waiting}

    def set_state(self, state: dict[str, int]) -> None:
        """Continue from a state from `get_state`."""
        self._waiting = {}
        self.trained, self.dropped = state["trained"], state["dropped"] + state["waiting"]
