"""Check that memory does not grow over 20,000 updates of one 64-row minibatch, after a warm-up, in every mode.

`python benchmarks/soak.py [--updates 20000] [--warmup 1000]`; exits with 1 if any mode grew by 1 % or more.
"""

import argparse
import gc
import json
import sys
from dataclasses import replace
from time import perf_counter
from typing import Any

import memory
import record
from alone import run_alone
from report import machine, table
from workload import SMALL, make_batch

MODES = ("torch:none", "torch:complete_update", "tf2:none", "tf2:auto")
LIMIT = 0.01
ONE_MINIBATCH = replace(SMALL, rows=64, num_epochs=1)
SAMPLES = 10


def measure(mode: str, updates: int, warmup: int) -> dict[str, Any]:
    """Return the resident bytes of this process after the warm-up and after every tenth of the updates."""
    from contestant_plugrad import Plugrad, use_one_thread

    from plugrad_ppo import PPOLearner

    backend, compile_mode = mode.split(":")
    use_one_thread(backend)
    contestant = Plugrad(ONE_MINIBATCH, 0, backend, compile_mode, PPOLearner)
    batches = [make_batch(ONE_MINIBATCH, n) for n in range(8)]
    resident = []
    for number in (warmup, *[updates // SAMPLES] * SAMPLES):
        start = perf_counter()
        for n in range(number):
            contestant.prepare(batches[n % len(batches)])
            contestant.update(shuffle=True)
        microseconds = 1e6 * (perf_counter() - start) / number
        gc.collect()
        resident.append(memory.resident())
    return {"mode": contestant.describe(), "resident": resident, "us_per_update": microseconds}


def _line(mode: str, found: dict[str, Any]) -> list[str]:
    start, end = found["resident"][0], found["resident"][-1]
    growth = end / start - 1.0
    verdict = "holds" if growth < LIMIT else "MISSED"
    mib = [f"{each / 2**20:.1f}" for each in (start, end)]
    return [f"{mode} ({found['mode']})", f"{found['us_per_update']:.0f}", *mib, f"{growth:+.2%}", verdict]


def _figures(mode: str, found: dict[str, Any]) -> dict[str, float]:
    name, (start, *_, end) = mode.replace(":", " "), found["resident"]
    return {f"{name} us": found["us_per_update"], f"{name} growth": end / start - 1.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--warmup", type=int, default=1_000)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    record.add_options(parser)
    parser.add_argument("--measure", metavar="MODE", help="measure one mode in this process and print JSON")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.updates, options.warmup)))
        return 0
    arguments = ("--updates", options.updates, "--warmup", options.warmup)
    found = {
        mode: run_alone("soak.py", "--measure", mode, *arguments, core=options.core) for mode in options.modes
    }
    print(machine(), "\n")
    lines = [_line(mode, each) for mode, each in found.items()]
    header = [
        "mode",
        "us per update",
        "MiB after warm-up",
        f"after {options.updates} more",
        "growth",
        "< 1 %",
    ]
    print(table(header, lines))
    figures = {name: value for mode, each in found.items() for name, value in _figures(mode, each).items()}
    record.save(options.save, "soak", {"updates": options.updates, **figures})
    return int(any(line[-1] == "MISSED" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
