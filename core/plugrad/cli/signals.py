"""Ctrl-C, SIGTERM and SIGHUP: the first ends training after the iteration, with a checkpoint; the second at once.

Python handles a signal between two of its instructions, and one instruction may be a compilation of minutes. So a
thread waits for signals as well: they reach it through a pipe, whatever the main thread does.
"""

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from io import RawIOBase
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 8.0
"""Seconds after a signal in which the iteration must end; else the process exits without it. The last checkpoint is
on disk."""


class StopSignals:
    """A context in which the first signal asks the process to end, and the second ends it at once.

    Attributes:
        received: the signal that asked to stop, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._iteration_is_done = self._ended_well = False
        self._handlers_before: dict[int, Any] = {}
        self._pipe: int | None = None
        self._wakeup_before = -1

    @property
    def exit_code(self) -> int:
        """128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM; 0 without a signal."""
        return 0 if self.received is None else 128 + self.received

    def __enter__(self) -> "StopSignals":
        # Only the main thread may set handlers; elsewhere the process's owner decides.
        if threading.current_thread() is threading.main_thread():
            self._start_thread()
            self._handlers_before = {
                number: signal.signal(number, self._receive)
                for number in SIGNALS
                if signal.getsignal(number) != signal.SIG_IGN  # as nohup asks
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.iteration_is_done()
        self._ended_well = kind is None
        if (
            self.received is None
        ):  # else the process is about to end, and a second signal still ends it at once
            self._stop_thread()

    def iteration_is_done(self) -> None:
        """Lift the deadline: what comes now is short and must be finished."""
        self._iteration_is_done = True

    def skip_teardown(self) -> None:
        """Exit at once if a signal asked to and the context ended without an error. Register it first with `atexit`.

        Everything is saved and closed by then, and an interpreter with torch or TensorFlow in it takes 1 to 2 seconds
        more to end (measured), many times that on a busy machine.
        """
        if self._ended_well and self.received is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            _exit_now(self.exit_code)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number

    def _start_thread(self) -> None:
        heard, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        self._wakeup_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._close_in_child)
        threading.Thread(
            target=self._wait_for_signals, args=(heard,), name="plugrad-signals", daemon=True
        ).start()

    def _stop_thread(self) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._pipe)  # the thread reads its end, and ends
            self._pipe = None

    def _close_in_child(self) -> None:
        # Ctrl-C reaches the children that an environment forked too: here they would be taken for a second one.
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)

    def _wait_for_signals(self, pipe: int) -> None:
        with open(pipe, "rb", buffering=0) as source:
            first = _next(source, None)
            if first is None:
                return
            _print("stopping after this iteration; once more leaves at once")
            second = _next(source, GRACE_S)
            if second is None:
                second = _next(source, None) if self._iteration_is_done else first
            if second is not None:
                _exit_now(128 + second)


def _next(source: RawIOBase, patience: float | None) -> int | None:
    """The next signal's number; None after `patience` seconds without one, or when the pipe is closed."""
    while select.select([source], [], [], patience)[0]:
        byte = source.read(1)
        if not byte:
            return None
        if byte[0] in SIGNALS:
            return byte[0]
    return None


def _exit_now(code: int) -> None:
    # No cleanup on purpose: checkpoints are written all or nothing, and cleanup is what may hang.
    os._exit(code)


def _print(text: str) -> None:
    # The main thread may be in the middle of a print: the descriptor has no buffer to mix up.
    with suppress(OSError):  # the terminal may be gone
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{text}\n".encode())
