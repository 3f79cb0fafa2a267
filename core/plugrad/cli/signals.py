"""Ctrl-C, SIGTERM and SIGHUP: finish the iteration, write a checkpoint, leave; the second one leaves at once.

Python hears a signal between two of its instructions, and a compilation is one that may take longer than anybody waits.
So a thread listens as well: signals reach it through a pipe, whatever the main thread does.
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
"""An iteration (or a compilation) that lasts longer after a signal is given up: the last checkpoint is on
disk."""


class StopSignals:
    """A context in which the first signal is a request to end the process, and the second an order.

    Attributes:
        received: the signal that asked to stop, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._iteration_is_done = self._is_over = False
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
            self._listen()
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
        self._is_over = kind is None
        if (
            self.received is None
        ):  # else the process is about to go, and a second signal leaves at once until it has
            self._stop_listening()

    def iteration_is_done(self) -> None:
        """What comes now is short and must be finished: the deadline is off."""
        self._iteration_is_done = True

    def skip_teardown(self) -> None:
        """Leave now if a signal asked to, and the context was left in order: for `atexit`, as the last of all.

        All is saved, closed and said then, and yet an interpreter with torch or TensorFlow in it takes 1 to 2 seconds
        to go (measured): longer than all the rest, and many times that on a machine with too much to do.
        """
        if self._is_over and self.received is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            _leave(self.exit_code)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number

    def _listen(self) -> None:
        heard, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        self._wakeup_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._be_deaf)
        threading.Thread(target=self._obey, args=(heard,), name="plugrad-signals", daemon=True).start()

    def _stop_listening(self) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._pipe)  # the thread reads its end, and ends
            self._pipe = None

    def _be_deaf(self) -> None:
        # Ctrl-C reaches the children that an environment forked too: here they would be taken for a second one.
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)

    def _obey(self, pipe: int) -> None:
        with open(pipe, "rb", buffering=0) as source:
            first = _next(source, None)
            if first is None:
                return
            _say("stopping after this iteration; once more leaves at once")
            order = _next(source, GRACE_S)
            if order is None:
                order = _next(source, None) if self._iteration_is_done else first
            if order is not None:
                _leave(128 + order)


def _next(source: RawIOBase, patience: float | None) -> int | None:
    """The next signal's number; None after so many seconds without one, or when there will be none any more."""
    while select.select([source], [], [], patience)[0]:
        byte = source.read(1)
        if not byte:
            return None
        if byte[0] in SIGNALS:
            return byte[0]
    return None


def _leave(code: int) -> None:
    # No cleanup on purpose: checkpoints are written all or nothing, and cleanup is what may hang.
    os._exit(code)


def _say(text: str) -> None:
    # Whoever is interrupted may be in the middle of a print: the descriptor has no buffer to mix up.
    with suppress(OSError):  # the terminal may be gone
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{text}\n".encode())
