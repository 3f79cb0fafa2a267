"""Kill learners of a group at random moments. Measure the recovery, and check that nothing is lost.

    python benchmarks/kill_learners.py --backend torch --learners 3 --kills 100

A hundred kills take 3 to 5 minutes on torch and 10 on tf2. Use `--seed` to run them in parts. After each kill, the
numbers of updates must be contiguous and all learners equal, or the script ends with an error. "Recovery" is how much
longer the interrupted update took: finding the fault, starting a process and its framework, copying the state, and
repeating the update.
"""

import argparse
import os
import random
import signal
import sys
from statistics import median
from threading import Timer
from time import perf_counter
from typing import Any

import numpy as np
from contestant_plugrad import make_config
from report import machine, table
from workload import SMALL, make_batch

from plugrad import DEFAULT_MODULE_ID, LearnerGroup
from plugrad.learner.state.state import digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    parser.add_argument("--stop", action="store_true", help="SIGSTOP instead of SIGKILL")
    given = parser.parse_args()
    config = make_config(SMALL, 0, given.backend, "auto").learners(
        num_learners=given.learners, max_restarts=10 * given.kills, timeout_s=3 if given.stop else 60
    )
    what, start = signal.SIGSTOP if given.stop else signal.SIGKILL, perf_counter()
    print(machine())
    with config.build_learner_group() as group:
        found = recoveries(group, given.kills, what, given.seed)
    row = (f"{given.backend}, {given.learners} learners", what.name, str(len(found)), *seconds(found))
    print(table(["recovery", "signal", "times", "median", "maximum"], [row]))
    print(
        f"\nNo update lost or repeated, all learners equal after each; {perf_counter() - start:.0f} s in all"
    )


def seconds(found: list[float]) -> tuple[str, str]:
    return f"{median(found):.1f} s", f"{max(found):.1f} s"


def recoveries(group: LearnerGroup, kills: int, what: signal.Signals, seed: int) -> list[float]:
    """Return the seconds that each kill cost."""
    rng, batch, updates = random.Random(seed), make_batch(SMALL, 0), 0
    usual: list[float] = []
    found: list[float] = []

    def update() -> float:
        nonlocal updates
        start = perf_counter()
        result = group.update(batch)[0]
        updates += 1
        if result[DEFAULT_MODULE_ID]["weights_seq_no"] != updates:
            sys.exit(f"update {updates} is number {result[DEFAULT_MODULE_ID]['weights_seq_no']}")
        return perf_counter() - start

    usual = [update() for _ in range(4)][1:]
    for kill in range(kills):
        victim = rng.choice(group.foreach_learner(_pid))
        timer = Timer(rng.uniform(0.0, median(usual)), os.kill, (victim, what))
        timer.start()
        took = update()
        timer.join()
        found.append(took + update() - 2 * median(usual))
        if len(set(group.foreach_learner(digest))) != 1:
            sys.exit(f"after kill {kill} the learners differ")
        print(f"kill {kill}: {found[-1]:.1f} s", file=sys.stderr)
    assert np.isfinite(found).all()
    return found


def _pid(learner: Any) -> int:
    return os.getpid()


if __name__ == "__main__":
    main()
