"""The training of APPO: each batch a few times, from a circular buffer."""

from collections.abc import Iterable, Mapping
from typing import Any

from plugrad.replay import CircularBuffer
from plugrad.rng_streams import stream
from plugrad.sampling import Sample, sample_from_state
from plugrad.training import AsynchronousTraining, TrainBatch


class APPOTraining(AsynchronousTraining):
    """`AsynchronousTraining` with a circular buffer.

    Each iteration has one update on new samples. If the buffer is full, updates on batches from the
    buffer follow: on average each batch is used `circular_buffer_iterations_per_batch` times, at different times.

    Args:
        algorithm: see `Training`; its config is an `APPOConfig`.
    """

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        config = self.config
        self._buffer = CircularBuffer[TrainBatch](
            config.circular_buffer_num_batches,
            config.circular_buffer_iterations_per_batch,
            stream(config.seed, "circular buffer"),
        )
        self._restored: Mapping[str, Any] = {}

    def get_batches_to_learn(self, batch: TrainBatch) -> Iterable[TrainBatch]:
        """The new batch, then batches of the full buffer. See `AsynchronousTraining`."""
        self._set_buffer()
        if (forgotten := self._buffer.add(batch)) is not None:
            self.steps.drop(forgotten)
        further = self._buffer.iterations_per_batch - 1 if self._buffer.is_full else 0
        yield self._buffer.sample()
        for _ in range(further):
            if len(self._buffer):
                yield self._buffer.sample()

    def get_state(self) -> dict[str, Any]:
        """The state of `AsynchronousTraining`, and the buffer.

        Batches of tensors become episodes, here too, so that this run goes on as one that is resumed.
        """
        self._set_buffer()
        state, now = self._buffer.get_state(), self.algorithm.learner_group.weights_version
        for batch in state["batches"]:
            self.make_episodes(batch)
        state["batches"] = [
            [{"waits": self.steps.is_waiting(each), **each.get_state(now)} for each in batch.samples]
            for batch in state["batches"]
        ]
        return {**super().get_state(), "circular_buffer": state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Training`."""
        super().set_state(state)
        self._restored = state.get("circular_buffer", {})

    def _set_buffer(self) -> None:
        """Take over a restored buffer. Versions of weights are counted anew after the learners are restored."""
        if self._restored:
            now = self.algorithm.learner_group.weights_version
            batches = [
                TrainBatch([self._restore_sample(each, now) for each in samples])
                for samples in self._restored["batches"]
            ]
            self._buffer.set_state({**self._restored, "batches": batches})
            self._restored = {}

    def _restore_sample(self, state: Mapping[str, Any], weights_version: int) -> Sample:
        sample = sample_from_state(state, weights_version)
        if state["waits"]:
            self.steps.add_restored(sample)
        return sample
