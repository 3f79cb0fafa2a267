"""Kill learners of a group, and measure the time from SIGKILL to the end of the next update.

    python benchmarks/healing.py --backend torch --kills 200
    python benchmarks/healing.py --backend tf2 --kills 200
    python benchmarks/healing.py --backend tf2 --kills 20 --on-failure restart

A kill comes at a random moment of an update or between two. With `--on-failure standby` (the default) the script waits
before each kill until a standby is ready, and says how long that took. After each kill, the numbers of updates must be
contiguous and all learners equal, or the script ends with an error.
"""

import argparse
import logging
import os
import random
import signal
import sys
from math import inf
from statistics import median
from threading import Timer
from time import perf_counter, sleep
from typing import Any

from contestant_plugrad import make_config
from report import machine, table
from workload import SMALL, make_batch

from plugrad import DEFAULT_MODULE_ID, LearnerGroup
from plugrad.learner.state.state import digest

BATCH = make_batch(SMALL, 0, 256)


class LostLearners(logging.Handler):
    """Counts the learners of which the group says that they are lost."""

    number = 0

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self.number += "on_failure" in record.getMessage()


class Strike:
    """Kills a process in a while, and notes when."""

    def __init__(self, pid: int, after_s: float) -> None:
        self.time = inf
        self._pid = pid
        Timer(after_s, self._kill).start()

    def _kill(self) -> None:
        self.time = perf_counter()
        os.kill(self._pid, signal.SIGKILL)


def heal(group: LearnerGroup, kills: int, rng: random.Random, standbys: int) -> tuple[list[float], ...]:
    """Return the seconds of usual updates, from each kill to the end of the next update, until a standby was ready."""
    updates = 0

    def update() -> None:
        nonlocal updates
        updates += 1
        number = group.update(BATCH)[0][DEFAULT_MODULE_ID]["weights_seq_no"]
        if number != updates:
            sys.exit(f"update {updates} is number {number}")

    for _ in range(4):
        update()
    usual, healed, ready = [], [], []
    logging.getLogger("plugrad").addHandler(lost := LostLearners())
    for kill in range(kills):
        start = perf_counter()
        while group.get_stats()["standby_ready"] < standbys:
            sleep(0.05)
        ready.append(perf_counter() - start)
        start = perf_counter()
        update()
        usual.append(perf_counter() - start)
        strike = Strike(rng.choice(group.foreach_learner(_pid)), rng.uniform(0.0, 1.5 * median(usual)))
        before = lost.number
        while lost.number == before:  # the dead one may have been done with the update of the kill
            update()
        healed.append(perf_counter() - strike.time)
        if len(set(group.foreach_learner(digest))) != 1:
            sys.exit(f"after kill {kill} the learners differ")
        print(f"kill {kill}: {healed[-1]:.3f} s, a standby after {ready[-1]:.1f} s", file=sys.stderr)
    return usual, healed, ready


def _pid(learner: Any) -> int:
    return os.getpid()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--on-failure", default="standby", choices=("standby", "restart"))
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    given = parser.parse_args()
    config = make_config(SMALL, 0, given.backend, "auto").learners(
        num_learners=given.learners, max_restarts=10 * given.kills, on_failure=given.on_failure
    )
    print(machine())
    with config.build_learner_group() as group:
        standbys = config.num_standby_learners
        usual, healed, ready = heal(group, given.kills, random.Random(given.seed), standbys)
    row = [f"{given.backend}, {given.learners} learners", given.on_failure, str(len(healed))]
    row += [
        f"{median(healed):.3f} s",
        f"{max(healed):.3f} s",
        f"{median(usual):.3f} s",
        f"{median(ready):.1f} s",
    ]
    head = ["SIGKILL to the end of the next update", "on_failure", "kills", "median", "worst", "usual update"]
    print(table([*head, "standby after"], [row]))


if __name__ == "__main__":
    main()
