"""Functions that take turns: one runs at a time, and the requests of all are answered together."""

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

Answer = Callable[[Sequence[Any]], Sequence[Any]]
"""`answer(requests)` gives an answer, or an exception to raise, for each request."""


class Turns:
    """Runs functions side by side, each in its own thread; one thread runs at a time.

    A function runs until it calls `ask`. When all have asked or ended, the requests are answered in the caller's
    thread, and the functions continue. So their order is fixed, and code for a single function needs no change.

    Args:
        answer: see `Answer`.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._here = threading.local()

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions to their ends.

        Args:
            functions: without arguments.

        Returns:
            The return value of each.

        Raises:
            BaseException: the first that a function raised, with its number in a note. The others ran to their ends.
        """
        turns = [_Turn(function, self._here) for function in functions]
        try:
            for turn in turns:
                turn.take()
            while waiting := [turn for turn in turns if turn.is_waiting]:
                for turn, answer in zip(waiting, self._answers(waiting), strict=True):
                    turn.reply = answer
                    turn.take()
        except BaseException as error:  # Ctrl-C: each function sees it where it waits
            _end(turns, error)
            raise
        for number, turn in enumerate(turns):
            if turn.error is not None:
                turn.error.add_note(f"in number {number} of {len(turns)} that are trained together")
                raise turn.error
        return [turn.result for turn in turns]

    def ask(self, request: Any) -> Any:
        """Send a request from a running function, and wait for the answer. Check `is_running` first."""
        turn: _Turn = self._here.turn
        return turn.ask(request)

    @property
    def is_running(self) -> bool:
        """Whether the caller is one of the functions that take turns."""
        return hasattr(self._here, "turn")

    def _answers(self, waiting: Sequence["_Turn"]) -> Sequence[Any]:
        try:
            return self._answer([turn.request for turn in waiting])
        except Exception as error:
            return [error] * len(waiting)


class _Turn:
    """One function in its thread."""

    def __init__(self, function: Callable[[], Any], here: threading.local) -> None:
        self.request: Any = None
        self.reply: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_waiting = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._is_running = False
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, function, here), daemon=True)

    def take(self) -> None:
        """Run until it asks or ends."""
        self._is_running = True
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self.finish_turn()

    def finish_turn(self) -> None:
        """Wait until it has asked or ended, if it runs."""
        if self._is_running:
            self._back.acquire()
            self._is_running = False

    def ask(self, request: Any) -> Any:
        """In its thread: hand the request over and wait."""
        self.request, self.is_waiting = request, True
        self._back.release()
        self._go.acquire()
        reply, self.request, self.reply, self.is_waiting = self.reply, None, None, False
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _run(self, function: Callable[[], Any], here: threading.local) -> None:
        here.turn = self
        try:
            self.result = function()
        except BaseException as error:  # raised in the caller's thread
            self.error = error
        finally:
            self._back.release()


def _end(turns: Sequence[_Turn], error: BaseException) -> None:
    for turn in turns:
        turn.finish_turn()
    while waiting := [turn for turn in turns if turn.is_waiting]:
        for turn in waiting:
            turn.reply = error
            turn.take()
