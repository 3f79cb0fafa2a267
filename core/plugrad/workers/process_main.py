"""What runs in a process of `WorkerProcess`: an object whose methods are called through a socket.

One thread reads the calls. It answers at once those that may run beside another one, so that a busy process gives a
sign of life. The main thread runs the others in their order. When the driver is gone, however it ended, this process
ends with all that it started, in the middle of a call too.
"""

import os
import pickle
import signal
import struct
import sys
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple

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


class Raised(NamedTuple):
    """An exception on its way to the driver.

    Args:
        pickled: the exception, or None where it cannot be pickled.
        summary: its class and message.
        trace: the traceback as text.
    """

    pickled: bytes | None
    summary: str
    trace: str

    def error(self) -> Exception:
        """The exception as it was, with the traceback as a note."""
        error: Exception = RuntimeError(self.summary) if self.pickled is None else pickle.loads(self.pickled)
        error.add_note(self.trace)
        return error


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
            good, answer = False, pickle.dumps(_raised(error))
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


def _raised(error: Exception) -> Raised:
    import cloudpickle

    trace = "".join(traceback.format_exception(error))
    summary = f"{type(error).__name__}: {error}"
    try:
        pickled: bytes = cloudpickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        return Raised(None, summary, trace)
    return Raised(pickled, summary, trace)
