"""Compare learners in Ray actors with one in this process: the cost of an actor, and the gain of two.

    python benchmarks/learner_group.py --peers peers/bin/python --rounds 9

All of them exist at once and update in turn, one at a time. A ratio is the median of the rounds' ratios. Two learners
do the same steps as one: the same minibatches, each learner its half of the rows. RLlib's two learners get half of the
rows each and half the minibatch size, which gives the same number of steps.
"""

import argparse
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import record
from alone import HERE, environment
from contestant_plugrad import make_config, use_one_thread
from race import median_ratio
from report import machine, table
from workload import CELLS, Cell, make_batch

from plugrad import LearnerGroup

Update = Callable[[], Any]
USUAL = ("small", "wide")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, help="python with ray[rllib]")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--backend", action="append", choices=("torch", "tf2"))
    parser.add_argument("--cell", action="append", choices=CELLS)
    record.add_options(parser)
    given = parser.parse_args()
    figures: dict[str, float] = {"rounds": given.rounds}
    print(machine())
    for backend in given.backend or ("torch", "tf2"):
        use_one_thread(backend)
        for cell in [CELLS[name] for name in given.cell or USUAL]:
            print(f"\n### {backend}, {cell.name}\n")
            text, found = race(backend, cell, given.rounds)
            print(text)
            figures |= {f"{backend} {cell.name}, {name}": value for name, value in found.items()}
    if given.peers:
        for name in given.cell or USUAL:
            arguments = [str(given.peers), str(HERE / "peers_rllib_group.py"), name, str(given.rounds)]
            done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment())
            print(f"\n### RLlib, {name}\n\n{done.stdout.strip().splitlines()[-1]}")
    else:
        print("\nRLlib left out: no --peers")
    record.save(given.save, "learner group", figures)


def race(backend: str, cell: Cell, rounds: int) -> tuple[str, dict[str, float]]:
    """Measure one cell on one backend. Returns the table and its figures."""
    config = make_config(cell, 0, backend, "auto")
    with ExitStack() as stack:
        updates: dict[str, Update] = {}
        built: dict[str, float] = {}
        modes: dict[str, str] = {}
        batches = [make_batch(cell, seed) for seed in range(rounds + 2)]
        current: list[Any] = [batches[0]]

        def add(name: str, **settings: Any) -> None:
            start = perf_counter()
            group: LearnerGroup = stack.enter_context(
                config.framework(backend, compile=settings.pop("compile", "auto"))
                .learners(**settings)
                .build_learner_group()
            )
            built[name] = perf_counter() - start
            updates[name] = lambda: group.update(current[0])
            for batch in batches[:2]:
                current[0] = batch
                updates[name]()
            modes[name] = group.foreach_learner(_mode)[0]

        add("local")
        if backend == "tf2":
            add("local, per step", compile="none")
        add("1 remote", num_learners=1)
        add("2 remote", num_learners=2)
        seconds = timed(updates, batches[2:], current)
    rows = [
        [
            name,
            f"{1e3 * median(each):.0f}",
            f"{1e3 * min(each):.0f}",
            f"{median_ratio(each, seconds['local']):.2f}",
            f"{built[name]:.1f}",
            modes[name],
        ]
        for name, each in seconds.items()
    ]
    figures = {f"{name} ms": 1e3 * median(each) for name, each in seconds.items()} | {
        f"{name} of local": median_ratio(each, seconds["local"]) for name, each in seconds.items()
    }
    text = table(["learners", "median ms", "best ms", "of local", "seconds to build", "mode"], rows)
    return text, figures


def timed(updates: dict[str, Update], batches: list[Any], current: list[Any]) -> dict[str, list[float]]:
    """Return the seconds of each, by round. Every other round runs in the opposite order."""
    seconds: dict[str, list[float]] = {name: [] for name in updates}
    for n, batch in enumerate(batches):
        current[0] = batch
        for name in list(updates)[:: 1 if n % 2 else -1]:
            start = perf_counter()
            updates[name]()
            seconds[name].append(perf_counter() - start)
    return seconds


def _mode(learner: Any) -> str:
    return str(learner.update_mode)


if __name__ == "__main__":
    main()
