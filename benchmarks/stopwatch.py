"""Seconds of wall and of processor time between two moments of this process."""

from time import perf_counter, process_time


class Stopwatch:
    """Begins when it is made."""

    def __init__(self) -> None:
        self._wall, self._processor = perf_counter(), process_time()

    def read(self) -> tuple[float, float]:
        """Seconds of wall and of processor time since the beginning."""
        return perf_counter() - self._wall, process_time() - self._processor
