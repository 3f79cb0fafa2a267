"""The part of a group's update that is spent in exchanges: what hiding them behind the backward pass can gain at most.

    python benchmarks/exchange_share.py --rounds 9 --save

Two remote learners of torch, eager, train on the cells of `update.py`, over each collective. A learner that comes first
waits for the other, which is no cost of the exchange: of each exchange the shorter time counts.
"""

import argparse
from statistics import median
from time import perf_counter
from typing import Any

import record
from contestant_plugrad import make_config, use_one_thread
from learner_group import USUAL
from report import machine, table
from workload import CELLS, Cell, make_batch

COLLECTIVES = ("shared_memory", "gloo")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cell", action="append", choices=CELLS)
    record.add_options(parser)
    given = parser.parse_args()
    use_one_thread("torch")
    figures: dict[str, float] = {"rounds": given.rounds}
    rows = []
    for cell in [CELLS[name] for name in given.cell or USUAL]:
        for collective in COLLECTIVES:
            update_ms, exchange_ms, count = measure(cell, collective, given.rounds)
            share = exchange_ms / update_ms
            rows.append(
                [cell.name, collective, f"{update_ms:.0f}", str(count), f"{exchange_ms:.1f}", f"{share:.3f}"]
            )
            figures |= {f"{cell.name}, {collective}, share": share}
    print(machine(), "\n")
    print(table(["cell", "collective", "update ms", "exchanges", "of it ms", "share"], rows))
    record.save(given.save, "exchange share", figures)


def measure(cell: Cell, collective: str, rounds: int) -> tuple[float, float, int]:
    """Train a group. Returns the medians of an update's milliseconds and of those in exchanges, and their number."""
    config = make_config(cell, 0, "torch", "none").learners(num_learners=2, collective=collective)
    updates, exchanges, count = [], [], 0
    with config.build_learner_group() as group:
        group.update(make_batch(cell, 0))
        group.foreach_learner(_time_exchanges)
        for seed in range(1, rounds + 1):
            batch = make_batch(cell, seed)
            start = perf_counter()
            group.update(batch)
            updates.append(1e3 * (perf_counter() - start))
            spent = group.foreach_learner(_take_times)
            exchanges.append(1e3 * sum(map(min, zip(*spent, strict=True))))
            count = len(spent[0])
    return median(updates), median(exchanges), count


def _time_exchanges(learner: Any) -> None:
    collective, times = learner.collective, []
    exchange = collective.all_reduce

    def all_reduce(values: Any) -> Any:
        start = perf_counter()
        total = exchange(values)
        times.append(perf_counter() - start)
        return total

    collective.all_reduce, collective.times = all_reduce, times


def _take_times(learner: Any) -> list[float]:
    times: list[float] = learner.collective.times
    taken = times[:]
    times.clear()
    return taken


if __name__ == "__main__":
    main()
