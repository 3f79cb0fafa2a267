"""`AsynchronousTraining`: update while env runners keep sampling; the batches and the counts of their steps."""

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

from plugrad.sampling.sample import Sample
from plugrad.sampling.tensor_env_runner import TensorEnvRunner, TensorSample
from plugrad.training.training import ModuleResults, Training


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
    def tensors(self) -> list[TensorSample]:
        """The steps of samples of environments of tensors, which have no episodes."""
        return [sample.tensors for sample in self.samples if sample.tensors is not None]

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

    def replace(self, sample: Sample, by: Sample) -> None:
        """Go on counting a sample as another one, of the same steps in another form."""
        if self._waiting.pop(id(sample), None) is not None:
            self.add(by)

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


class AsynchronousTraining(Training):
    """Training on samples that may come from older weights; the algorithm corrects for this, as IMPALA with V-trace.

    One iteration takes samples until they have `train_batch_size` environment steps, and updates on these. Meanwhile
    env runner processes sample, each up to `max_requests_in_flight_per_env_runner` samples ahead; then they wait. With
    `num_env_runners=0` it samples and updates in turn. It does not wait for remote learners either: up to
    `max_requests_in_flight_per_learner` updates may be in flight, and `on_full` says what happens beyond that. Results
    are those of the last finished update.

    Additional results:

    - `env_runners/weights_staleness_mean` and `env_runners/weights_staleness_max`: updates between the weights that
      acted and those that learned, over the samples trained on in the iteration.
    - `env_runners/num_samples_in_flight`: samples that were requested and not taken yet; `num_updates_in_flight`:
      unfinished updates of remote learners.
    - `num_env_steps_trained_lifetime`, `num_env_steps_waiting` and `num_env_steps_dropped_lifetime`: their sum is the
      number of sampled steps. A step counts as sampled when its sample is taken, and as trained only once, even if it
      is used several times.
    - `num_env_steps_trained_per_second`: in this iteration, without evaluation.

    A checkpoint waits for updates and samples in flight. The samples are part of it, and a resumed run first learns
    from them. `Algorithm.stop` does not wait.

    A subclass may override `get_batches_to_learn`, such as for a circular buffer.

    Args:
        algorithm: see `Training`.

    Attributes:
        steps: counts of trained, waiting and dropped steps.
    """

    can_sample_async: ClassVar[bool] = True
    can_sample_tensors: ClassVar[bool] = True

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        self.steps = StepCounts()
        self._taken: list[Sample] = []
        self._updates: list[tuple[Any, TrainBatch]] = []
        self._learned: ModuleResults = {}
        self._begin_report()

    def training_step(self) -> ModuleResults:
        """See `Training`."""
        start = perf_counter()
        for batch in self.get_batches_to_learn(self._next_batch()):
            self._learn(batch)
            self._finish_updates()
        self._seconds += perf_counter() - start
        learned, self._learned = self._learned, {}
        return learned

    def get_batches_to_learn(self, batch: TrainBatch) -> Iterable[TrainBatch]:
        """The batches of one iteration; each becomes one update. Default: the new batch.

        A subclass that keeps batches may return older ones, and the same one several times. It calls `self.steps.drop`
        for a batch that it will not return again.

        Args:
            batch: new samples with at least `train_batch_size` environment steps.

        Returns:
            Batches, trained on in this order.
        """
        return [batch]

    def make_episodes(self, batch: TrainBatch) -> None:
        """Put episodes in the place of tensors in a batch, as its state has them.

        Args:
            batch: one that a subclass keeps and saves; one of episodes stays as it is.
        """
        samples = []
        for sample in batch.samples:
            found = sample
            if sample.tensors is not None:
                runner: TensorEnvRunner = self.algorithm.env_runner
                episodes = sample.tensors.episodes(runner.tensors.to_numpy)
                found = sample._replace(episodes=episodes, tensors=None)
                self.steps.replace(sample, found)
            samples.append(found)
        batch.samples = tuple(samples)

    def _next_batch(self) -> TrainBatch:
        """The oldest samples that together have `train_batch_size` steps."""
        self.algorithm.request_samples()
        while sum(sample.num_env_steps for sample in self._taken) < self.config.train_batch_size:
            for sample in self.algorithm.collect_samples(max_samples=1):
                self.steps.add(sample)
                self._taken.append(sample)
            self.algorithm.request_samples()  # so that env runners do not wait for the update
        batch, self._taken = TrainBatch(self._taken), []
        return batch

    def _learn(self, batch: TrainBatch) -> None:
        group = self.algorithm.learner_group
        version = group.weights_version + sum(not future.done for future, _ in self._updates)
        self._staleness.extend(batch.staleness(version))
        try:
            self._update(batch) if group.is_local else self._submit(batch)
        except BaseException:
            self.steps.drop(batch)  # the update was refused or undone
            raise

    def _update(self, batch: TrainBatch) -> None:
        if tensors := batch.tensors:
            runner: TensorEnvRunner = self.algorithm.env_runner
            self._learned = self.algorithm.update(runner.connected(tensors))
        else:
            self._learned = self.algorithm.update(episodes=batch.episodes)
        self.steps.train(batch)

    def _submit(self, batch: TrainBatch) -> None:
        timesteps = {"num_env_steps_sampled_lifetime": self.num_env_steps}
        future = self.algorithm.learner_group.submit(episodes=batch.episodes, timesteps=timesteps)
        self._updates.append((future, batch))

    def _finish_updates(self) -> None:
        """Count the finished updates of remote learners, in order."""
        for future, batch in [each for each in self._updates if each[0].done]:
            self._updates.remove((future, batch))
            if future.state != "applied":
                self.steps.drop(batch)
            outcome = future.result()
            if future.state == "applied":
                self.steps.train(batch)
                self._learned = outcome[0]

    def _begin_report(self) -> None:
        self._staleness: list[int] = []
        self._trained_before, self._seconds = self.steps.trained, 0.0

    def get_metrics(self) -> dict[str, float]:
        """The additional results (see the class) of the training steps since the last call."""
        steps, staleness = self.steps, self._staleness
        metrics: dict[str, float] = {
            "num_env_steps_trained_lifetime": steps.trained,
            "num_env_steps_waiting": steps.waiting,
            "num_env_steps_dropped_lifetime": steps.dropped,
            "env_runners/num_samples_in_flight": self.algorithm.num_samples_in_flight,
            "num_updates_in_flight": len(self._updates),
            "num_env_steps_trained_per_second": (steps.trained - self._trained_before)
            / max(self._seconds, 1e-9),
        }
        if staleness:
            metrics["env_runners/weights_staleness_mean"] = sum(staleness) / len(staleness)
            metrics["env_runners/weights_staleness_max"] = max(staleness)
        self._begin_report()
        return metrics

    def get_state(self) -> dict[str, Any]:
        """The counts of steps."""
        self._finish_updates()
        return {"steps": self.steps.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Training`. Steps that waited when the run was saved are dropped."""
        if state:
            self.steps.set_state(state["steps"])
            self._begin_report()
