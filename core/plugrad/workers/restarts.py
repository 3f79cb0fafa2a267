"""`RestartLimit`: how many lost processes a group may replace in an hour."""

from collections import deque
from collections.abc import Callable
from time import monotonic

WINDOW_S = 3600.0
"""Restarts of longer ago do not count."""


class RestartLimit:
    """At most `max_restarts` restarts in any hour.

    Args:
        max_restarts: the setting.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, max_restarts: int, clock: Callable[[], float] = monotonic) -> None:
        self._max_restarts = max_restarts
        self._clock = clock
        self._times: deque[float] = deque()

    def take(self, number: int) -> bool:
        """Take `number` restarts, if as many are left in this hour.

        Args:
            number: of processes to be replaced.

        Returns:
            True if there were; else none are taken.
        """
        now = self._clock()
        while self._times and now - self._times[0] >= WINDOW_S:
            self._times.popleft()
        if len(self._times) + number > self._max_restarts:
            return False
        self._times.extend([now] * number)
        return True

    @property
    def used_up(self) -> str:
        """The message of the error that none are left."""
        return f"max_restarts={self._max_restarts} are used up for this hour"
