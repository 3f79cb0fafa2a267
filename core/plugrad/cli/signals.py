"""Ctrl-C and SIGTERM: finish the iteration, write a checkpoint, leave; the second one leaves at once."""

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_S = 8.0
"""An iteration (or a compilation) that lasts longer after a signal is given up: the last checkpoint is on
disk."""


class StopSignals:
    """A context in which the first signal is a request and the second an order.

    Attributes:
        received: the signal that asked to stop, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}
        self._deadline: threading.Timer | None = None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM; 0 without a signal."""
        return 0 if self.received is None else 128 + self.received

    def __enter__(self) -> "StopSignals":
        # Only the main thread may set handlers; elsewhere the process's owner decides.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.iteration_is_done()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def iteration_is_done(self) -> None:
        """What comes now is short and must be finished: the deadline is off."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            _leave(128 + number)
        self.received = number
        _say("stopping after this iteration; once more leaves at once")
        self._deadline = threading.Timer(GRACE_S, _leave, args=(128 + number,))
        self._deadline.daemon = True
        self._deadline.start()


def _leave(code: int) -> None:
    # No cleanup on purpose: checkpoints are written all or nothing, and cleanup is what may hang.
    os._exit(code)


def _say(text: str) -> None:
    # A signal may interrupt a print: the buffered streams are not safe to use here, the descriptor is.
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{text}\n".encode())
