"""Learners that give an on-policy algorithm asynchronous training; env runner processes import this file, too."""

import os
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv
from waiting import wait_until

from plugrad.sampling import sample_from_state
from plugrad.training import AsynchronousTraining, TrainBatch, Training
from plugrad_ppo import PPOLearner


class Buffered(AsynchronousTraining):
    """Keeps two batches and learns from each of them three times; drops every fifth batch that comes."""

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        self.kept: deque[TrainBatch] = deque()
        self.number = 0

    def get_batches_to_learn(self, batch: TrainBatch) -> Iterable[TrainBatch]:
        self.number += 1
        self.kept.append(batch)
        if self.number % 5 == 0:
            self.steps.drop(self.kept.pop())
        if len(self.kept) < 3:
            return []
        return [self.kept[0], self.kept[1], self.kept.popleft()]

    def get_state(self) -> dict[str, Any]:
        batches = [
            [{"waits": self.steps.is_waiting(each), **each.get_state(0)} for each in batch.samples]
            for batch in self.kept
        ]
        return {**super().get_state(), "kept": batches, "number": self.number}

    def set_state(self, state: Any) -> None:
        super().set_state(state)
        self.number = state["number"]
        for each in state["kept"]:
            batch = TrainBatch([sample_from_state(sample, 0) for sample in each])
            self.kept.append(batch)
            for sample, saved in zip(batch.samples, each, strict=True):
                if saved["waits"]:
                    self.steps.add_restored(sample)


class AsynchronousLearner(PPOLearner):
    """A learner of PPO whose Algorithm trains asynchronously."""

    training: type[Training] = AsynchronousTraining

    def _provide(self, hook: str, **arguments: Any) -> Any:
        return self.training if hook == "get_training_class" else super()._provide(hook, **arguments)


class BufferedLearner(AsynchronousLearner):
    """The same with `Buffered`."""

    training = Buffered


class StepsInFile(CartPoleEnv):
    """CartPole that adds one byte to a file at each step; it may raise or wait at a certain one.

    Args:
        path: of the file.
        raises_at: the step that raises; None: none.
        waits_at: the step that ends when there is a file `<path>.open`; None: none.
        seconds: what each step takes.
    """

    def __init__(
        self, path: str, raises_at: int | None = None, waits_at: int | None = None, seconds: float = 0.0
    ) -> None:
        super().__init__()
        self.path, self.seconds = path, seconds
        self.raises_at, self.waits_at = raises_at, waits_at

    def step(self, action: Any) -> Any:
        with open(self.path, "ab", buffering=0) as file:  # each write ends at a number of its own
            file.write(b".")
            number = file.tell()
        if number == self.raises_at:
            raise ZeroDivisionError(f"at step {number}")
        while number == self.waits_at and not os.path.exists(f"{self.path}.open"):
            time.sleep(0.001)
        time.sleep(self.seconds)
        return super().step(action)


class WaitsForSteps(AsynchronousLearner):
    """An update ends only after the env runners have stepped meanwhile; without overlap it fails."""

    def _update(self, batch: Any) -> Any:
        path = self.config.env_config["path"]
        before = os.path.getsize(path)
        wait_until(
            lambda: os.path.getsize(path) > before, "a step of an env runner during this update", 0.001
        )
        return super()._update(batch)
