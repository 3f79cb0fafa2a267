"""The only clock of the tests: it ends what hangs. How long something takes makes no test pass or fail.

What a test asserts is counted: calls, bytes, events and their order (`test_assertions.py` refuses other clocks).
"""

import time
from collections.abc import Callable, Iterator

HANG_S = 300.0
"""Far longer than anything takes on a busy machine, and shorter than the limit of pytest's `faulthandler_timeout`."""


def until(happens: Callable[[], bool], what: str) -> Iterator[None]:
    """Go on with a loop until something happens; a loop that would never end is an error.

    Args:
        happens: asked before each turn.
        what: names it in the error.

    Raises:
        AssertionError: it has not happened after `HANG_S`.
    """
    deadline = time.monotonic() + HANG_S
    while not happens():
        assert time.monotonic() < deadline, f"hangs: after {HANG_S:.0f} s there is not yet {what}"
        yield


def wait_until(happens: Callable[[], bool], what: str, pause_s: float = 0.01) -> None:
    """Wait for something to happen; see `until`."""
    for _ in until(happens, what):
        time.sleep(pause_s)
