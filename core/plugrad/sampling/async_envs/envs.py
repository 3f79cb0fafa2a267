"""`AsyncEnvs`: environments that step in worker processes, all at the same time."""

import os
import pickle
import signal
import socket
import struct
import subprocess
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle  # Gymnasium brings it
import numpy as np
from gymnasium.envs.registration import EnvSpec

from plugrad.errors import EnvContractError, EnvWorkerError
from plugrad.sampling.async_envs.worker import (
    IDLE,
    SHUTDOWN_S,
    Share,
    SharedArrays,
    create_memory,
    map_arrays,
    reserve,
)
from plugrad.sampling.env_calls import EnvCall
from plugrad.sampling.env_clock import dumped_place
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.sampling.vector_envs import EnvSpaces, RunningEpisode, VectorEnvs, reset_seeds
from plugrad.types import Array
from plugrad.workers.process import start_interpreter

# --- a worker process: start it, call it, and end it whatever state it is in ---


class WorkerLostError(Exception):
    """A worker process died or did not answer in time; the message says which, and `is_late` too."""

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


class WorkerFailure(Exception):
    """An error that was raised in a worker process, as `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class WorkerProcess:
    """A process that answers one call at a time; see `worker`.

    Args:
        memory: descriptor of the file with the shared arrays.
    """

    def __init__(self, memory: int) -> None:
        ours, theirs = socket.socketpair()
        self._stacks = os.fdopen(create_memory(), "rb")
        with theirs:
            self._process = start_interpreter(
                "plugrad.sampling.async_envs.worker:serve", theirs.fileno(), memory, self._stacks.fileno()
            )
        self._socket = ours
        self._connection = Connection(os.dup(ours.fileno()))
        self._timeout_s = 0.0
        self._num_unanswered = 0

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def call(self, method: str, *args: Any, timeout_s: float) -> None:
        """Call a method of the worker without waiting for its answer; `answer` raises if the process is dead.

        Args:
            method: its name.
            *args: its arguments.
            timeout_s: seconds that the answer may take.
        """
        while self._num_unanswered:  # an interrupt came between a call and its answer
            with suppress(WorkerFailure, WorkerLostError):
                self.answer()
        self._set_timeout(timeout_s)
        with suppress(OSError):
            self._connection.send_bytes(pickle.dumps((method, args), pickle.HIGHEST_PROTOCOL))
        self._num_unanswered += 1

    def answer(self) -> Any:
        """Wait for the answer to the last call.

        Returns:
            What the method returned.

        Raises:
            WorkerLostError: the process died, or did not answer in time and was killed.
            WorkerFailure: the method raised an error.
        """
        try:
            received = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._lost(error) from error
        self._num_unanswered -= 1
        answer = pickle.loads(received)
        if isinstance(answer, Exception):
            raise WorkerFailure(answer)
        return answer

    def hang_up(self) -> None:
        """Tell the worker to end, without waiting."""
        self._connection.close()
        self._socket.close()

    def end(self, timeout_s: float = SHUTDOWN_S) -> None:
        """Wait for the end of a worker after `hang_up`; kill it if that takes too long."""
        self._wait(timeout_s)
        self._stacks.close()

    def _wait(self, timeout_s: float) -> None:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _set_timeout(self, timeout_s: float) -> None:
        """Limit each read and write; polling before each would cost half as much as an answer."""
        if timeout_s == self._timeout_s:
            return
        self._timeout_s = timeout_s
        seconds, rest = divmod(timeout_s, 1)
        limit = struct.pack("ll", int(seconds), int(1e6 * rest))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def _lost(self, error: Exception) -> WorkerLostError:
        self._num_unanswered = 0
        if isinstance(error, BlockingIOError):  # the time limit
            self._process.send_signal(signal.SIGUSR1)  # it writes where it is
            self.hang_up()
            self._wait(0.2)
            place = dumped_place(os.pread(self._stacks.fileno(), 2**16, 0).decode(errors="replace"))
            self.end()
            where = f" in {place}" if place else ""
            late = f"did not answer within {self._timeout_s:g} seconds, and was killed{where}"
            return WorkerLostError(late, is_late=True)
        self.end()
        code = self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return WorkerLostError(f"died: it {how}")


# --- the environments of all workers ---


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

    def call_envs(self, call: EnvCall) -> list[Any]:
        """See `VectorEnvs`."""
        pickled = cloudpickle.dumps(call)
        parts = self._call("call_envs", [(pickled,)] * len(self._shares))
        return [result for part in parts for result in part]

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
            "Make others in their places and go on, algorithm.env_runners.make_anew(), or resume from the last "
            "checkpoint, with new_episodes=True if it comes to the same end again"
        )
        if lost.is_late:
            limit = "timeout_s" if self._arrays is not None else "build_timeout_s"
            hint += f". If it needs more time: .learners({limit}=...)"
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


# --- the infos of several vector environments as those of one ---


def join_infos(parts: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """Join infos of a step or a reset.

    Args:
        parts: of each vector environment, as Gymnasium has them: arrays over its environments, and dicts of these.
        sizes: how many environments each has.

    Returns:
        Arrays over all environments; rows of environments that say nothing are zeros or None.
    """
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part.get(name) for part in parts]
        if any(isinstance(value, dict) for value in values):
            joined[name] = join_infos([value or {} for value in values], sizes)
        else:
            joined[name] = _join(values, sizes)
    return joined


def _join(values: Sequence[Array | None], sizes: Sequence[int]) -> Array:
    given = [value for value in values if value is not None]
    if len({(value.dtype, value.shape[1:]) for value in given}) > 1:  # such as masks of different lengths
        return _join([None if value is None else _objects(value) for value in values], sizes)
    shape, dtype = given[0].shape[1:], given[0].dtype
    empty = None if dtype == np.dtype(object) else 0
    return np.concatenate(
        [
            np.full((size, *shape), empty, dtype) if value is None else value
            for value, size in zip(values, sizes, strict=True)
        ]
    )


def _objects(value: Array) -> Array:
    rows = np.empty(len(value), object)
    rows[:] = list(value)
    return rows
