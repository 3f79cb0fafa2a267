"""Time for processes on one machine to sum an array: plugrad's collectives and bare gloo, as torch gives it.

    python benchmarks/exchanges.py --rounds 15 --processes 2 3 --save

The same processes, Ray actors, use each collective in turn, in every other round in the opposite order. Each takes a
float32 array and returns another one with the sum. Bare gloo sums in place, so it gets a copy in a buffer that it
keeps. A round is the mean of many exchanges in a row. A ratio is the median of the rounds' ratios. On two machines:
`exchanges_apart.py`.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from secrets import token_hex
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import ray
import record
from alone import environment
from race import median_ratio
from report import machine, table

from plugrad import list_plugins
from plugrad.collective import Collective, Membership
from plugrad.hooks.registry import load_collective
from plugrad.types import Array
from plugrad.workers.actors import CONTROL

SIZES = {"36 kB": (36_000, 200), "1 MB": (1_000_000, 30), "10 MB": (10_000_000, 4)}
"""`{name: (bytes, exchanges in a round)}`: 36 kB are the gradients of two networks of 2x64."""
SHARED = "shared_memory"
OURS = (SHARED, "gloo", "ray")
"""Of plugrad, where they are installed."""
BARE = "bare gloo"
TIMEOUT_S = 60.0

Exchange = Callable[[Array], Array]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 3])
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="a running Ray with machines for one process each: no shared memory",
    )
    record.add_options(parser)
    given = parser.parse_args()
    if given.address:
        own = given.address.partition(":")[0]
        ray.init(address=given.address, _node_ip_address=own, logging_level="ERROR")
        names = [name for name in OURS if name != SHARED]
    else:
        os.environ.update(environment(RAY_worker_niceness="0"))
        ray.init(
            address="local", num_cpus=max(given.processes), include_dashboard=False, logging_level="ERROR"
        )
        names = list(OURS)
    print(machine(), end="\n\n")
    saved: dict[str, float] = {}
    for number in given.processes:
        seconds = race(names, number, given.rounds)
        print(f"{number} processes", as_table(seconds), sep="\n\n", end="\n\n")
        saved |= {f"{name}, {number} processes": each for name, each in figures(seconds).items()}
    ray.shutdown()
    record.save(given.save, "exchanges", saved | {"rounds": given.rounds})


def race(names: list[str], number: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of rank 0: `{size: {exchange: seconds of one exchange, by round}}`; of collectives by these names."""
    installed = {each.name for each in list_plugins() if each.kind == "collective" and each.installed}
    with tempfile.TemporaryDirectory() as folder:
        remote = ray.remote(concurrency_groups={CONTROL: 1}, num_cpus=1)(Process)
        processes = [remote.remote(rank, number, folder) for rank in range(number)]
        for epoch, name in enumerate(each for each in names if each in installed):
            key = token_hex(16)
            contacts = ray.get([each.contact.remote(name, epoch, key) for each in processes])
            ray.get([each.enter.remote(name, contacts) for each in processes])
        seconds: dict[str, dict[str, list[float]]] = ray.get(
            [each.play.remote(rounds) for each in processes]
        )[0]
        ray.get([each.close.remote() for each in processes])
    for each in processes:
        ray.kill(each)
    return seconds


class Process:
    """One of the processes, which is in all collectives."""

    def __init__(self, rank: int, number: int, folder: str) -> None:
        import torch
        from torch import distributed

        torch.set_num_threads(1)
        os.environ["PLUGRAD_HOST"] = ray.util.get_node_ip_address()  # as learners of groups do
        file = f"file://{folder}/gloo"
        distributed.init_process_group("gloo", init_method=file, rank=rank, world_size=number)
        buffers: dict[int, Any] = {}

        def gloo(values: Array) -> Array:
            buffer = buffers.setdefault(values.size, torch.empty(values.size))
            distributed.all_reduce(buffer.copy_(torch.from_numpy(values)))
            total: Array = buffer.numpy()
            return total

        self._rank, self._number = rank, number
        self._ours: dict[str, Collective] = {}
        self._exchanges: dict[str, Exchange] = {BARE: gloo}

    def contact(self, name: str, epoch: int, key: str) -> bytes:
        """Make one end of a collective; returns its contact."""
        membership = Membership(self._rank, self._number, epoch, key, TIMEOUT_S)
        self._ours[name] = load_collective(name)(membership)
        return self._ours[name].contact()

    def enter(self, name: str, contacts: list[bytes]) -> None:
        """Connect it to the others."""
        self._ours[name].enter(contacts)
        self._exchanges[name] = self._ours[name].all_reduce

    def play(self, rounds: int) -> dict[str, dict[str, list[float]]]:
        """Use each exchange in turn."""
        found: dict[str, dict[str, list[float]]] = {}
        for size, (num_bytes, times) in SIZES.items():
            values = np.random.default_rng(self._rank).normal(size=num_bytes // 4).astype(np.float32)
            check_equal(self._exchanges, values)
            found[size] = {name: [] for name in self._exchanges}
            for n in range(rounds):
                for name in list(self._exchanges)[:: 1 if n % 2 else -1]:
                    found[size][name].append(timed(self._exchanges[name], values, times))
        return found

    def close(self) -> None:
        """Leave all."""
        for each in self._ours.values():
            each.close()


def check_equal(exchanges: dict[str, Exchange], values: Array) -> None:
    """Check that all exchanges return the same sum. This is also the first, slow use of each."""
    sums = [exchange(values) for exchange in exchanges.values()]
    for each in sums[1:]:  # gloo adds in another order than that of ranks
        np.testing.assert_allclose(each, sums[0], rtol=1e-5, atol=1e-5)


def timed(exchange: Exchange, values: Array, times: int) -> float:
    """Return the seconds of one exchange, the mean of many in a row."""
    exchange(values)  # comes together with the other process
    start = perf_counter()
    for _ in range(times):
        exchange(values)
    return (perf_counter() - start) / times


def as_table(seconds: dict[str, dict[str, list[float]]]) -> str:
    """Make a table of milliseconds and of ratios to shared memory and to bare gloo."""
    rows = [
        [
            size,
            name,
            *(f"{1e3 * value:.3f}" for value in (median(each), min(each))),
            *(f"{ratio(by_name, name, to):.2f}" if to in by_name else "" for to in (SHARED, BARE)),
        ]
        for size, by_name in seconds.items()
        for name, each in by_name.items()
    ]
    return table(["array", "exchange", "median ms", "best ms", "of shared memory", "of bare gloo"], rows)


def ratio(by_name: dict[str, list[float]], name: str, to: str = SHARED) -> float:
    return median_ratio(by_name[name], by_name[to])


def figures(seconds: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """Return the figures for results.json."""
    return {
        f"{name} {size} ms": 1e3 * median(each)
        for size, by_name in seconds.items()
        for name, each in by_name.items()
    } | {
        f"{name} {size} of shared memory": ratio(by_name, name)
        for size, by_name in seconds.items()
        for name in by_name
        if name != SHARED and SHARED in by_name
    }


if __name__ == "__main__":
    main()
