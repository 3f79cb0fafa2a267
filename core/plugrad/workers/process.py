"""`WorkerProcess`: an object in a process of its own on this machine, called like a Ray actor; and what runs there.

The process is a new interpreter (`start_interpreter`) that shares nothing with this one. It leads a process group of
its own: what the process starts ends with it. It ends when this process does, whatever ends it.

One thread of the process reads the calls. It answers at once those that may run beside another one, so that a busy
process gives a sign of life. The main thread runs the others in their order. When the driver is gone, however it ended,
the process ends with all that it started, in the middle of a call too.
"""

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple

from plugrad.importing.names import main_is_elsewhere
from plugrad.workers.answers import LostActor, Raised


def start_interpreter(function: str, *descriptors: int) -> subprocess.Popen[bytes]:
    """Start a process that runs a function.

    It is a new interpreter, not a fork: a fork beside the threads of TensorFlow or of a user can lock up. It does not
    run the user's script again, as `multiprocessing` does, so that scripts need no `if __name__ == "__main__"`. It has
    a session of its own: Ctrl-C reaches this process only. So notebooks can start one, too.

    Args:
        function: `"package.module:name"`.
        *descriptors: open files, which the process inherits; its function gets their numbers.

    Returns:
        The process.
    """
    module, _, name = function.partition(":")
    path = [os.path.abspath(folder) for folder in sys.path]
    code = f"import sys; sys.path = {path!r}; from {module} import {name}; {name}{tuple(descriptors)!r}"
    return subprocess.Popen(
        [sys.executable, *(f"-W{option}" for option in sys.warnoptions), "-c", code],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


def prepare_process(search_path: list[str], num_threads: int) -> None:
    """Prepare an actor's process, before it imports a framework.

    Args:
        search_path: the driver's `sys.path`, from which the user's classes are imported.
        num_threads: how many threads one operation of a framework may use.
    """
    main_is_elsewhere()
    sys.path += [folder for folder in search_path if folder not in sys.path]
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(num_threads)))


# --- in the process ---


HEADER = struct.Struct("!Q?")
"""Number of a call, and whether it raised nothing."""


class Call(NamedTuple):
    """A call on its way to the process.

    Args:
        number: which its answer carries.
        method: of the object; None: make the object.
        args: of the method; None of a ping.
        control: whether it runs beside a call that the process is busy with.
    """

    number: int
    method: str | None
    args: tuple[Any, ...]
    control: bool


def main(descriptor: int) -> None:
    """Answer the calls that come through a socket until it is closed at the other end."""
    _Worker(Connection(descriptor)).run()


class _Worker:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = Lock()
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._driver = os.getppid()
        self._object: Any = None

    def run(self) -> None:
        Thread(target=self._read, name="plugrad-calls", daemon=True).start()
        while True:
            self._answer(self._calls.get())

    def _read(self) -> None:
        try:
            while self._wait_for_call():
                call = pickle.loads(self._connection.recv_bytes())
                self._answer(call) if call.control else self._calls.put(call)
        except (EOFError, OSError):  # closed
            pass
        finally:
            _end()

    def _wait_for_call(self) -> bool:
        """Whether a call came, and not the driver's end, which a process that the driver forked may hide."""
        while not self._connection.poll(1.0):
            if os.getppid() != self._driver:
                return False
        return True

    def _answer(self, call: Call) -> None:
        try:
            value, good = self._run(call), True
            answer = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            good, answer = False, pickle.dumps(Raised.of(error))
        try:
            with self._sending:
                self._connection.send_bytes(HEADER.pack(call.number, good))
                self._connection.send_bytes(answer)
        except OSError:
            _end()

    def _run(self, call: Call) -> Any:
        if call.method is None:
            make, *arguments = call.args
            self._object = make(*arguments)
            return None
        return getattr(self._object, call.method)(*call.args) if call.method else None


def _end() -> None:
    """End this process and those that it started; it is the first of its process group."""
    sys.stdout.flush()
    os.killpg(0, signal.SIGKILL)


# --- in the driver ---

POLL_S = 0.5
"""Seconds between checks that a silent process is still there."""
EXIT_S = 1.0
"""Seconds that a process has to end after its connection is closed."""
HUNG = 124
"""The exit code of a process that ends itself because a call hangs, as coreutils' `timeout` has it."""


class _LostError(Exception):
    """The process is gone, or takes no messages."""

    def __init__(self, died: bool, reason: str) -> None:
        super().__init__(reason)
        self.died = died


class WorkerProcess:
    """An object in a process of its own.

    Args:
        make: a class or function that can be imported by name; it makes the object.
        *arguments: of `make`.
        timeout_s: seconds after which a process that takes no messages is lost.

    Attributes:
        location: this machine's name and the process id.
    """

    def __init__(self, make: Any, *arguments: Any, timeout_s: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", *_timeval(timeout_s)))
            self._process = start_interpreter("plugrad.workers.process:main", theirs.fileno())
        self._timeout_s = timeout_s
        self._connection = Connection(ours.detach())
        self.location = socket.gethostname(), self._process.pid
        # Of its own: answers are taken while a message waits for the process to read it.
        self._sending = Lock()
        self._lock = Lock()
        self._last_number = 0
        self._unanswered: dict[int, Future[tuple[bool, bytes]]] = {}
        self._lost: _LostError | None = None
        Thread(target=self._read, name="plugrad-answers", daemon=True).start()
        self._made = self._send(None, (make, *arguments), control=False)

    def call(self, method: str, *args: Any, control: bool = False) -> Future[tuple[bool, bytes]]:
        """Call a method without waiting for it.

        Args:
            method: its name.
            *args: its arguments.
            control: whether it runs beside a call that the process is busy with.

        Returns:
            The request, for `ProcessCalls`.
        """
        return self._send(method, args, control=control)

    def ping(self) -> Future[tuple[bool, bytes]]:
        """Ask for a sign of life, which a thread beside a busy one gives; returns the request."""
        return self._send("", (), control=True)

    def _send(
        self, method: str | None, args: tuple[Any, ...], *, control: bool
    ) -> Future[tuple[bool, bytes]]:
        request: Future[tuple[bool, bytes]] = Future()
        with self._sending:
            with self._lock:
                if self._lost is not None:
                    request.set_exception(self._lost)
                    return request
                self._last_number += 1
                self._unanswered[self._last_number] = request
            try:
                call = Call(self._last_number, method, args, control)
                self._connection.send_bytes(pickle.dumps(call, protocol=pickle.HIGHEST_PROTOCOL))
            except BlockingIOError:
                lost = _LostError(False, f"takes no messages for {self._timeout_s:g} s")
            except OSError:
                lost = self._died()
            else:
                return request
            with self._lock:
                self._lose(lost)
        return request

    def _read(self) -> None:
        """Set the answers of requests until the process is gone."""
        try:
            while True:
                while not self._connection.poll(POLL_S):
                    if self._process.poll() is not None:  # what it started may hold the socket open
                        raise EOFError
                number, good = HEADER.unpack(self._connection.recv_bytes())
                answer = self._connection.recv_bytes()
                with self._lock:
                    request = self._unanswered.pop(number, None)
                if request is not None:
                    request.set_result((good, answer))
        except (EOFError, OSError):
            lost = self._died()
            with self._lock:
                self._lose(lost)
            with self._sending:  # else another file may get the number that a message is written to
                self._connection.close()

    def _died(self) -> _LostError:
        with suppress(subprocess.TimeoutExpired):  # its connection closes a moment before it has ended
            self._process.wait(EXIT_S)
        code = self._process.poll()
        if code is None:
            return _LostError(True, "closed its connection")
        if code == HUNG:
            return _LostError(True, "hung, and ended itself")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return _LostError(True, f"died ({name})")

    def _lose(self, lost: _LostError) -> None:
        """No request will be answered any more; called with the lock."""
        self._lost = self._lost or lost
        for request in self._unanswered.values():
            if not request.done():
                request.set_exception(self._lost)
        self._unanswered = {}

    @property
    def has_exited(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End the process and what it started at once, also if it is stopped."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with self._lock:
            self._lose(_LostError(True, "was ended"))


class ProcessCalls:
    """Answers of processes, for `gather`."""

    def wait(self, refs: Sequence[Any], timeout_s: float) -> Sequence[Any]:
        """See `Calls.wait`."""
        return list(wait(refs, timeout_s, return_when=FIRST_COMPLETED).done)

    def get(self, rank: int, ref: Any) -> Any:
        """See `Calls.get`."""
        try:
            good, answer = ref.result()
        except _LostError as lost:
            return LostActor(rank, lost.died, str(lost))
        value = pickle.loads(answer)
        return value if good else value.error()


def _timeval(seconds: float) -> tuple[int, int]:
    return int(seconds), int(seconds % 1 * 1e6)
