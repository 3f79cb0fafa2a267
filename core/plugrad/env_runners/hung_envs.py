"""The end of a process whose environments hang: nothing can interrupt a step, and the driver starts another process."""

import os
import sys
from threading import Thread
from time import sleep

from plugrad.sampling.env_clock import EnvClock
from plugrad.workers.process import HUNG

CHECKS = 8
"""How often the clock is read within the time limit: it is exceeded by an eighth at most."""


def end_if_environments_hang(clock: EnvClock, timeout_s: float, rank: int) -> None:
    """Let a thread end this process when one step or reset takes too long; it prints where that is.

    A step that holds Python's lock stops this thread too: then the driver hears no sign of life.

    Args:
        clock: of the env runner.
        timeout_s: seconds that one step or reset may take.
        rank: of the env runner.
    """
    Thread(
        target=_end_when_hung, args=(clock, timeout_s, rank), name="plugrad-hung-envs", daemon=True
    ).start()


def _end_when_hung(clock: EnvClock, timeout_s: float, rank: int) -> None:
    while clock.seconds <= timeout_s:
        sleep(timeout_s / CHECKS)
    where = f" in {clock.place}" if clock.place else ""
    print(
        f"plugrad: env runner {rank}: its environments did not answer within {timeout_s:g} seconds, and it ends"
        f"{where}. If they need more time: .learners(timeout_s=...)",
        file=sys.stderr,
        flush=True,
    )
    os._exit(HUNG)
