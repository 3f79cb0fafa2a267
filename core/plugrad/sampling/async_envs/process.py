"""A worker process: start it, call it, and end it whatever state it is in."""

import os
import pickle
import signal
import socket
import struct
import subprocess
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from plugrad.importing.interpreter import start_interpreter

SHUTDOWN_S = 3.0
"""Seconds in which a worker may close its environments; then it is killed."""


class WorkerLostError(Exception):
    """A worker process died or did not answer in time; the message says which."""


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
        with theirs:
            self._process = start_interpreter(
                "plugrad.sampling.async_envs.worker:serve", theirs.fileno(), memory
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
            self._process.send_signal(signal.SIGUSR1)  # it prints where it is
            self.hang_up()
            self.end(timeout_s=0.2)
            return WorkerLostError(f"did not answer within {self._timeout_s:g} seconds, and was killed")
        self.end()
        code = self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return WorkerLostError(f"died: it {how}")
