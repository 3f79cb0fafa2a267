"""What runs in a worker process: its share of the environments, and one answer to each call."""

import faulthandler
import mmap
import os
import pickle
import select
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from time import sleep
from typing import Any, NamedTuple

import cloudpickle  # Gymnasium brings it: it pickles what a script or a notebook defines
import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Space

from plugrad.errors import ConfigError
from plugrad.sampling.named_envs import register_sent
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.sampling.vector_envs import READ_INFOS, EnvSpaces, LeanSyncVectorEnv, RunningEpisode, SyncEnvs
from plugrad.spaces.kinds import array_space, is_structured
from plugrad.types import Array

SHUTDOWN_S = 3.0
"""Seconds in which a worker may close its environments; then it is killed."""


class Share(NamedTuple):
    """The environments of one worker.

    Args:
        makers: one function for each.
        name: of the environment, for errors.
        spec: what its id means, for ids that only the driver has registered.
        first: index of the first one among all environments.
        number: of the worker.
        info_metrics: names of numbers in their infos that are read.
    """

    makers: Sequence[Callable[[], ReplayableEnv]]
    name: str
    spec: EnvSpec | None
    first: int
    number: int
    info_metrics: Sequence[str]


def serve(end: int, memory: int, stacks: int) -> None:
    """Answer calls until the other end hangs up.

    Args:
        end: descriptor of this end of the socket.
        memory: descriptor of the file with the shared arrays.
        stacks: descriptor of the file in which the process writes where it is when it gets SIGUSR1.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, stacks)
    threading.Thread(target=_leave_with_driver, args=(end,), daemon=True).start()
    connection, worker = Connection(end), Worker(memory)
    try:
        while True:
            method, args = pickle.loads(connection.recv_bytes())
            connection.send_bytes(_answer(getattr(worker, method), args))
    except (EOFError, OSError):
        worker.close()


def _leave_with_driver(end: int) -> None:
    """End this process when its driver is gone, also if an environment never returns."""
    poll = select.poll()
    poll.register(end, 0)  # hanging up is always reported
    poll.poll()
    sleep(SHUTDOWN_S)
    os._exit(1)


def _answer(method: Callable[..., Any], args: Sequence[Any]) -> bytes:
    try:
        return pickle.dumps(method(*args), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return _pickle_error(error)


def _pickle_error(error: Exception) -> bytes:
    """The error as bytes; one that cannot be pickled becomes a RuntimeError with its words."""
    notes = [
        *getattr(error, "__notes__", ()),
        "in a worker process:\n" + "".join(traceback.format_exception(error)),
    ]
    try:
        pickled: bytes = cloudpickle.dumps(_Noted(error, notes))
        pickle.loads(pickled)
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps(_Noted(plain, notes))
    return pickled


class _Noted:
    """An error that keeps its notes when it is pickled."""

    def __init__(self, error: Exception, notes: list[str]) -> None:
        self._error, self._notes = error, notes

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_notes, (self._error, self._notes)


def _with_notes(error: Exception, notes: list[str]) -> Exception:
    error.__notes__ = notes
    return error


class Worker:
    """The environments of a worker process, and the memory that it writes to.

    Args:
        memory: descriptor of the file with the shared arrays.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._is_made = False

    def make(self, pickled: bytes) -> bytes:
        """Make the environments of a pickled `Share`; returns their `EnvSpaces` and source of masks, pickled."""
        self._share: Share = pickle.loads(pickled)
        register_sent(self._share.spec)
        envs = LeanSyncVectorEnv(self._share.makers, self._share.info_metrics)
        self._envs, self._is_made = SyncEnvs(envs, name=self._share.name), True
        answer: bytes = cloudpickle.dumps((self._envs.spaces, self._envs.mask_source))
        return answer

    def share_arrays(self, num_envs: int, num_workers: int) -> None:
        """Write answers to the arrays of all workers from now on.

        Args:
            num_envs: of all workers.
            num_workers: how many there are.
        """
        first, number = self._share.first, self._share.number
        arrays = map_arrays(self._memory, self._envs.spaces, num_envs, num_workers)
        self._busy = arrays.busy[number : number + 1]
        *self._answers, self._actions = [each[first : first + self._envs.num_envs] for each in arrays[:5]]
        for index, env in enumerate(self._envs.replayable, start=first):
            env.env = WatchedEnv(env.env, index, self._busy)

    def reset(self, seeds: list[int] | None) -> dict[str, Any]:
        """Begin new episodes; returns the infos."""
        observations, infos = self._envs.reset_seeded(seeds)
        np.copyto(self._answers[0], observations)
        self._busy[0] = IDLE
        return infos

    def step(self, actions: Any = None) -> dict[str, Any]:
        """Step with these actions, or with the shared ones; returns the infos."""
        # A copy, because actions of running episodes are kept.
        *answers, infos = self._envs.step(self._actions.copy() if actions is None else actions)
        for array, answer in zip(self._answers, answers, strict=True):
            np.copyto(array, answer)
        self._busy[0] = IDLE
        return infos

    def call_envs(self, pickled: bytes) -> list[Any]:
        """See `VectorEnvs`; the pickled `EnvCall` may have values of the user's classes."""
        return self._envs.call_envs(pickle.loads(pickled))

    def get_running_episodes(self) -> dict[str, Any] | None:
        """See `VectorEnvs`; by index among all environments."""
        states, first = self._envs.get_running_episodes(), self._share.first
        return None if states is None else {str(first + int(index)): state for index, state in states.items()}

    def replay(self, states: Mapping[str, Any]) -> list[RunningEpisode]:
        """See `VectorEnvs`; the states are those of this worker."""
        first = self._share.first
        episodes = self._envs.replay({str(int(index) - first): state for index, state in states.items()})
        self._busy[0] = IDLE
        return [_lean(episode) for episode in episodes]

    def restart(self, index: int) -> RunningEpisode:
        """See `VectorEnvs`; the index is that among all environments."""
        episode = self._envs.restart(index - self._share.first)
        self._busy[0] = IDLE
        return _lean(episode)

    def close(self) -> None:
        """Close the environments."""
        if self._is_made:
            self._envs.close()


def _lean(episode: RunningEpisode) -> RunningEpisode:
    """The episode with the infos that an env runner reads; others may not be data."""
    return episode._replace(info={name: episode.info[name] for name in READ_INFOS if name in episode.info})


class WatchedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Marks its environment as busy, so that the driver knows in which one a worker died.

    Args:
        env: the environment.
        index: among all environments.
        busy: int64 [1].
    """

    def __init__(self, env: gym.Env[Any, Any], index: int, busy: Array) -> None:
        super().__init__(env)
        self._index, self._busy = index, busy

    def reset(self, **settings: Any) -> Any:
        """Reset the environment."""
        self._busy[0] = self._index
        return self.env.reset(**settings)

    def step(self, action: Any) -> Any:
        """Step the environment."""
        self._busy[0] = self._index
        return self.env.step(action)


# --- the arrays that a driver and its workers share ---
#
# They lie in an unnamed file, which is removed when the last process closes it.


LINE = 64
"""Arrays begin at multiples of a cache line."""
IDLE = -1


class SharedArrays(NamedTuple):
    """The last actions and answers of all environments.

    Args:
        observations: `[N, ...]`.
        rewards: float64 `[N]`.
        terminated: bool `[N]`.
        truncated: bool `[N]`.
        actions: `[N, ...]`; `[N, 0]` where an action is no array.
        busy: int64 `[num_workers]`, the environment that each worker is in, or `IDLE`.
    """

    observations: Array
    rewards: Array
    terminated: Array
    truncated: Array
    actions: Array
    busy: Array


def create_memory() -> int:
    """Create a file without a name; returns its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("plugrad-environments")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def reserve(descriptor: int, spaces: EnvSpaces, num_envs: int, num_workers: int) -> None:
    """Make the file large enough for the arrays.

    Args:
        descriptor: of `create_memory`.
        spaces: of one environment.
        num_envs: `N`.
        num_workers: how many processes write.

    Raises:
        ConfigError: there is not enough memory.
    """
    size = sum(_padded(dtype, shape) for dtype, shape in _layout(spaces, num_envs, num_workers))
    try:
        if hasattr(os, "posix_fallocate"):  # full memory is an error here, and a crash when it is written to
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        raise ConfigError(
            f"no memory for the observations of {num_envs} environments, {size} bytes: {error.strerror}"
        ) from error


def map_arrays(descriptor: int, spaces: EnvSpaces, num_envs: int, num_workers: int) -> SharedArrays:
    """Map the arrays of a file.

    Args:
        descriptor: of the file, after `reserve`.
        spaces: as in `reserve`.
        num_envs: as in `reserve`.
        num_workers: as in `reserve`.

    Returns:
        The arrays, which all processes share.
    """
    memory, start, arrays = mmap.mmap(descriptor, 0), 0, []
    for dtype, shape in _layout(spaces, num_envs, num_workers):
        count = int(np.prod(shape))
        arrays.append(np.frombuffer(memory, dtype, count, start).reshape(shape))
        start += _padded(dtype, shape)
    return SharedArrays(*arrays)


def _layout(
    spaces: EnvSpaces, num_envs: int, num_workers: int
) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    numbers = [(np.dtype(each), (num_envs,)) for each in (np.float64, np.bool_, np.bool_)]
    observations, actions = (_batch(space, num_envs) for space in (spaces.rows, spaces.actions))
    return [observations, *numbers, actions, (np.dtype(np.int64), (num_workers,))]


def _batch(space: Space[Any], num_envs: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if is_structured(space) or array_space(space) is not space:
        return np.dtype(np.float64), (num_envs, 0)
    return np.dtype(space.dtype), (num_envs, *(space.shape or ()))


def _padded(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    return LINE * -(-int(np.prod(shape)) * dtype.itemsize // LINE)
