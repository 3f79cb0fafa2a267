"""Where an update's time goes: `Learner.update` compared with its loop alone, and with a step without hooks.

`python benchmarks/overhead.py [--cell small] [--rounds 15]`. Runs every mode in a process of its own.
"""

import argparse
import json
from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import Any

from alone import run_alone
from report import machine, table
from workload import CELLS

MODES = ("torch:none", "torch:complete_update", "tf2:none", "tf2:auto")


def measure(mode: str, cell_name: str, number: int) -> dict[str, Any]:
    """Measure `number` paired rounds in this process, in seconds."""
    from bare import BareLearner, RecordingLearner
    from contestant_plugrad import Plugrad, use_one_thread
    from workload import make_batch

    backend, compile_mode = mode.split(":")
    use_one_thread(backend)
    cell = CELLS[cell_name]
    plain = Plugrad(cell, 0, backend, compile_mode, RecordingLearner)
    bare = Plugrad(cell, 0, backend, compile_mode, BareLearner)
    seconds: dict[str, list[float]] = {"update": [], "loop": [], "bare": []}
    stages: dict[str, list[float]] = {}
    for n in range(number + 2):
        for each in (plain, bare):
            each.prepare(make_batch(cell, n))
        took = {
            "update": _seconds(lambda: plain.update(True)),
            "loop": _seconds(plain.learner.replay),
            "bare": _seconds(lambda: bare.update(True)),
        }
        if n >= 2:  # the first two warm up
            for name, value in took.items():
                seconds[name].append(value)
            for stage, value in _stages(plain.learner.metrics.results).items():
                stages.setdefault(stage, []).append(value)
    return {"mode": plain.describe(), "seconds": seconds, "stages": stages}


def _seconds(function: Any) -> float:
    start = perf_counter()
    function()
    return perf_counter() - start


def _stages(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the stage timers that `Learner.update` reports."""
    found = results["__all_modules__"].items()
    return {name.removeprefix("time/"): float(value) for name, value in found if name.startswith("time/")}


def _line(mode: str, found: dict[str, Any]) -> list[str]:
    update, loop, bare = (found["seconds"][name] for name in ("update", "loop", "bare"))
    around = median((a - b) / a for a, b in zip(update, loop, strict=True))
    inside = median((a - b) / a for a, b in zip(update, bare, strict=True))
    times = [f"{1e3 * median(each):.2f}" for each in (update, loop, bare)]
    return [mode, *times, f"{around:.1%}", f"{inside:.1%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", choices=list(CELLS), default="small")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--measure", metavar="MODE", help="measure one mode in this process and print JSON")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.cell, options.rounds)))
        return
    arguments = ("--cell", options.cell, "--rounds", options.rounds)
    found = {
        mode: run_alone("overhead.py", "--measure", mode, *arguments, core=options.core)
        for mode in options.modes
    }
    print(machine(), "\n")
    for mode, each in found.items():
        print(f"{mode}: {each['mode']}")
    header = ["mode", "update ms", "loop ms", "bare step ms", "around the loop", "hooks, metrics, guard"]
    print(f"\n{table(header, [_line(mode, each) for mode, each in found.items()])}\n")
    stages = list(next(iter(found.values()))["stages"])
    lines = [
        [mode, *(f"{1e3 * median(each['stages'][s]):.2f}" for s in stages)] for mode, each in found.items()
    ]
    print(table(["stage ms", *stages], lines))


if __name__ == "__main__":
    main()
