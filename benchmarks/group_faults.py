"""Cause each kind of fault before each kind of call of a group. Check the call and the next update.

    python benchmarks/group_faults.py --backend torch
    python benchmarks/group_faults.py --backend tf2 --fault SIGSTOP

There are five faults (SIGKILL, SIGSTOP, an exception in user code, NaN on one learner, a bad batch) and eight calls.
After a fault, a call must either do its work or raise. The next update, without a fault, must take exactly one step,
change the weights and leave all learners equal. Exits with 1 if one of the forty combinations does anything else.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from contestant_plugrad import make_config
from faulty_learner import FaultyLearner, be
from report import machine, table
from workload import SMALL, make_batch

from plugrad import DEFAULT_MODULE_ID, LearnerGroup, RLModuleSpec
from plugrad.learner.state.state import digest

P = DEFAULT_MODULE_ID
BATCH = make_batch(SMALL, 0, 256)
BAD = {**BATCH, "advantages": np.full(256, np.nan, np.float32)}
TIMEOUT_S, BUILD_TIMEOUT_S = 3.0, 30.0
FAULTS = ("SIGKILL", "SIGSTOP", "exception", "NaN", "bad batch")


def strike(group: LearnerGroup, fault: str) -> None:
    """Cause a fault in the last learner, now or in its next update. The others have to notice."""
    pid = group.foreach_learner(lambda learner: os.getpid())[1]
    if fault in ("SIGKILL", "SIGSTOP"):
        os.kill(pid, getattr(signal, fault))
    elif fault in ("exception", "NaN"):
        group.foreach_learner(be, {pid: "raise" if fault == "exception" else "nan"})


def calls(group: Any, fault: str, folder: Path) -> dict[str, Callable[[], Any]]:
    """The calls to test. A bad batch is passed to the call, or right before it."""
    batch = BAD if fault == "bad batch" else BATCH

    def after_a_bad_batch(call: Callable[[], Any]) -> Callable[[], Any]:
        def both() -> Any:
            if fault == "bad batch":
                group.submit(BAD)
            return call()

        return both

    others: dict[str, Callable[[], Any]] = {
        "save": lambda: group.save_to_path(folder / "saved"),
        "get_state": lambda: group.get_state(),
        "set_state": lambda: group.set_state(group.get_state()),
        "add_module": lambda: group.add_module(
            module_id="p1", module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [8]})
        ),
        "remove_module": lambda: group.remove_module("p1"),
        "shutdown": lambda: group.shutdown(),
    }
    return {
        "update": lambda: group.update(batch),
        "async update": lambda: group.submit(batch).result(60),
        **{name: after_a_bad_batch(call) for name, call in others.items()},
    }


def run_with_fault(config: Any, fault: str, name: str, folder: Path) -> tuple[str, str]:
    """Make the call. Returns what it did, and what is wrong ("" if nothing)."""
    with config.build_learner_group() as group:
        if name == "remove_module":
            group.add_module(module_id="p1", module_spec=RLModuleSpec())
        group.update(BATCH)
        strike(group, fault)
        start = perf_counter()
        try:
            answer = calls(group, fault, folder)[name]()
            did = "nothing" if name in ("update", "async update") and not answer else "done"
        except Exception as error:
            did = type(error).__name__
        took = perf_counter() - start
        did += f", {took:.1f} s" if took >= 0.15 else ""
        if name == "shutdown":
            return did, after_shutdown(group)
        return did, "an empty result" if did.startswith("nothing") else next_update(group)


def after_shutdown(group: LearnerGroup) -> str:
    """Check that a group that was shut down raises an error that says so."""
    try:
        group.update(BATCH)
    except Exception:
        return ""
    return "updated after shutdown"


def next_update(group: LearnerGroup) -> str:
    """Make the update after a fault. Returns what is wrong."""
    group.foreach_learner(be, {})
    before = group.get_state()["learner"]
    results = group.update(BATCH)
    step = before["counters"]["weights_seq_no"] + 1
    if [each[P]["weights_seq_no"] for each in results] != [step] * len(group):
        return f"expected step {step} of {len(group)} learners"
    weights = group.get_weights()[P]
    if all(np.array_equal(weights[each], before["rl_module"][P][each]) for each in weights):
        return "the weights did not move"
    return "" if len(set(group.foreach_learner(digest))) == 1 else "the learners differ"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one")
    given = parser.parse_args()
    config = make_config(SMALL, 0, given.backend, "auto").learners(
        num_learners=2,
        learner_class=FaultyLearner,
        timeout_s=TIMEOUT_S,
        build_timeout_s=BUILD_TIMEOUT_S,
        max_restarts=100,
    )
    names = list(calls(None, "", Path()))
    rows, wrong, start = [], 0, perf_counter()
    print(machine())
    for fault in given.fault or FAULTS:
        row = [fault]
        for name in names:
            with TemporaryDirectory() as folder:
                did, complaint = run_with_fault(config, fault, name, Path(folder))
            wrong += bool(complaint)
            row.append(f"{did}{': WRONG: ' + complaint if complaint else ''}")
            print(fault, name, row[-1], file=sys.stderr)
        rows.append(row)
    print(table([given.backend, *names], rows))
    print(f"\n{wrong} of {len(rows) * len(names)} wrong; {perf_counter() - start:.0f} s in all")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
