"""`AsyncEnvs`: environments that step in worker processes, all at the same time."""

import os
import pickle
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import cloudpickle  # Gymnasium brings it
import numpy as np
from gymnasium.envs.registration import EnvSpec

from plugrad.errors import EnvContractError, EnvWorkerError
from plugrad.sampling.async_envs.infos import join_infos
from plugrad.sampling.async_envs.process import WorkerFailure, WorkerLostError, WorkerProcess
from plugrad.sampling.async_envs.shared_arrays import IDLE, SharedArrays, create_memory, map_arrays, reserve
from plugrad.sampling.async_envs.worker import Share
from plugrad.sampling.environments import reset_seeds
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.sampling.vector_envs import EnvSpaces, RunningEpisode, VectorEnvs
from plugrad.types import Array


class AsyncEnvs(VectorEnvs):
    """Single environments in worker processes; their running episodes can be saved.

    An error of an environment is raised here once all workers have answered, and they go on. A worker that died is not
    replaced, since its environments are lost: close these and make new ones.

    Args:
        makers: one function for each environment.
        name: of the environment, for errors.
        spec: what its id means, for ids that only this process has registered.
        num_workers: how many processes there are, at most one for each environment.
        timeout_s: seconds that one step or reset of a worker's environments may take.
        build_timeout_s: seconds that making them, or replaying one episode, may take.
        info_metrics: names of numbers in their infos that are read.

    Raises:
        EnvWorkerError: here and by all methods, if a worker died or did not answer in time.
        Exception: what making an environment raised.
    """

    can_replay = True

    def __init__(
        self,
        makers: Sequence[Callable[[], ReplayableEnv]],
        *,
        name: str,
        spec: EnvSpec | None = None,
        num_workers: int,
        timeout_s: float,
        build_timeout_s: float,
        info_metrics: Sequence[str] = (),
    ) -> None:
        self.name, self.num_envs = name, len(makers)
        self._timeout_s, self._build_timeout_s = timeout_s, build_timeout_s
        self._arrays: SharedArrays | None = None
        self._shares = _divide(self.num_envs, num_workers)
        self._memory = create_memory()
        self._workers: list[WorkerProcess] = []
        self._end = weakref.finalize(self, _end, self._workers, self._memory)
        try:
            self._start(makers, spec, info_metrics)
        except BaseException:
            self.close()
            raise

    @property
    def mask_source(self) -> str:
        """See `VectorEnvs`."""
        return self._mask_source

    def reset(self, entropy: tuple[int, ...]) -> tuple[Array, dict[str, Any]]:
        """See `VectorEnvs`."""
        seeds = reset_seeds(entropy, self.num_envs)
        infos = self._call("reset", [(None if seeds is None else seeds[share],) for share in self._shares])
        return self._answers.observations, join_infos(infos, self._sizes)

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """See `VectorEnvs`."""
        shared = self._answers.actions
        args: list[tuple[Any, ...]] = [()] * len(self._shares)
        if isinstance(actions, np.ndarray) and (actions.dtype, actions.shape) == (shared.dtype, shared.shape):
            np.copyto(shared, actions)
        else:
            args = [(_rows(actions, share),) for share in self._shares]
        infos = self._call("step", args)
        return *self._answers[:4], join_infos(infos, self._sizes)

    def get_running_episodes(self) -> dict[str, Any] | None:
        """See `VectorEnvs`."""
        parts = self._call("get_running_episodes", [()] * len(self._shares))
        return None if None in parts else {index: state for part in parts for index, state in part.items()}

    def replay(self, states: Mapping[str, Any]) -> Sequence[RunningEpisode]:
        """See `VectorEnvs`."""
        args = [({str(i): states[str(i)] for i in range(share.start, share.stop)},) for share in self._shares]
        parts = self._call("replay", args, timeout_s=self._build_timeout_s * max(self._sizes))
        return [episode for part in parts for episode in part]

    def restart(self, index: int) -> RunningEpisode:
        """See `VectorEnvs`."""
        number = next(n for n, share in enumerate(self._shares) if index < share.stop)
        (episode,) = self._call("restart", [(index,)], first=number)
        return episode  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the processes; calling it again does nothing."""
        self._end()
        self._arrays = None  # the memory goes with the last array that looks into it

    # --- calls --------------------------------------------------------------------------------------------------

    def _start(
        self, makers: Sequence[Callable[[], ReplayableEnv]], spec: EnvSpec | None, info_metrics: Sequence[str]
    ) -> None:
        self._workers += [WorkerProcess(self._memory) for _ in self._shares]
        shares = [
            Share(makers[share], self.name, spec, share.start, number, info_metrics)
            for number, share in enumerate(self._shares)
        ]
        made = self._call(
            "make", [(cloudpickle.dumps(share),) for share in shares], timeout_s=self._build_timeout_s
        )
        spaces, self._mask_source = self._equal_spaces([pickle.loads(each) for each in made])
        super().__init__(name=self.name, num_envs=self.num_envs, spaces=spaces)
        numbers = self.num_envs, len(self._workers)
        reserve(self._memory, spaces, *numbers)
        arrays = map_arrays(self._memory, spaces, *numbers)
        arrays.busy[:] = IDLE
        self._arrays = arrays
        self._call("share_arrays", [numbers] * len(self._workers))

    def _equal_spaces(self, made: Sequence[tuple[EnvSpaces, str]]) -> tuple[EnvSpaces, str]:
        for share, (spaces, _) in zip(self._shares, made, strict=True):
            if spaces != made[0][0]:
                raise EnvContractError(
                    f"environment {share.start} of {self.name} has other spaces than environment 0: "
                    f"{spaces}; expected: {made[0][0]}",
                    env=self.name,
                    index=share.start,
                    expected=made[0][0],
                    found=spaces,
                )
        return made[0]

    @property
    def _sizes(self) -> list[int]:
        return [share.stop - share.start for share in self._shares]

    @property
    def _answers(self) -> SharedArrays:
        assert self._arrays is not None
        return self._arrays

    def _call(
        self, method: str, args: Sequence[tuple[Any, ...]], *, timeout_s: float | None = None, first: int = 0
    ) -> list[Any]:
        """Call a method of `len(args)` workers, from number `first` on, and wait for all of them."""
        numbers = range(first, first + len(args))
        for number, each in zip(numbers, args, strict=True):
            self._workers[number].call(method, *each, timeout_s=timeout_s or self._timeout_s)
        answers = [self._answer(number) for number in numbers]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _answer(self, number: int) -> Any:
        """What a worker answers; an error is a value, so that the others are waited for."""
        try:
            return self._workers[number].answer()
        except WorkerFailure as failure:
            return failure.error
        except WorkerLostError as lost:
            return self._lost(number, lost)

    def _lost(self, number: int, lost: WorkerLostError) -> EnvWorkerError:
        busy = IDLE if self._arrays is None else int(self._arrays.busy[number])
        if busy != IDLE:
            where = f"environment {busy} of {self.name}: its worker process"
        else:
            share = self._shares[number]
            where = f"environments {share.start} to {share.stop - 1} of {self.name}: their worker process"
        hint = (
            "Close these environments and make new ones, or resume from the last checkpoint, with new_episodes=True if "
            "it comes to the same end again"
        )
        known = {} if busy == IDLE else {"index": busy}
        return EnvWorkerError(f"{where} {lost}. {hint}", env=self.name, **known)


def num_usable_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _divide(num_envs: int, num_workers: int) -> list[slice]:
    """Equal shares of neighbouring environments; the first ones have one more where it does not divide."""
    size, rest = divmod(num_envs, num_workers)
    bounds = np.cumsum([0, *(size + (number < rest) for number in range(num_workers))]).tolist()
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _rows(actions: Any, share: slice) -> Any:
    """The actions of some environments, in the structure of the action space."""
    if isinstance(actions, Mapping):
        return {key: _rows(part, share) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(_rows(part, share) for part in actions)
    return actions[share]


def _end(workers: Iterable[WorkerProcess], memory: int) -> None:
    for worker in workers:
        worker.hang_up()
    for worker in workers:
        worker.end()
    os.close(memory)
