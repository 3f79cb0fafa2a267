"""Time for two processes on one machine to sum an array: plugrad's collectives and bare gloo, as torch gives it.

    python benchmarks/exchanges.py --rounds 15 --save

The same two processes use each collective in turn, in every other round in the opposite order. Each takes a float32
array and returns another one with the sum. gloo sums in place, so it gets a copy in a buffer that it keeps. A round is
the mean of many exchanges in a row. A ratio is the median of the rounds' ratios.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe, get_context
from pathlib import Path
from secrets import token_hex
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import record
from alone import environment
from race import median_ratio
from report import machine, table

from plugrad import list_plugins
from plugrad.collective import Collective, Membership
from plugrad.hooks.registry import load_collective
from plugrad.types import Array

SIZES = {"36 kB": (36_000, 200), "1 MB": (1_000_000, 30), "10 MB": (10_000_000, 4)}
"""`{name: (bytes, exchanges in a round)}`: 36 kB are the gradients of two networks of 2x64."""
OURS = ("shared_memory", "gloo", "ray")
"""Of plugrad, where they are installed."""
BARE = "bare gloo"
TIMEOUT_S = 60.0

Exchange = Callable[[Array], Array]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    record.add_options(parser)
    given = parser.parse_args()
    os.environ.update(environment())
    with tempfile.TemporaryDirectory() as folder:
        mine, yours = Pipe()
        there = (token_hex(16), Path(folder, "gloo"), given.rounds)
        other = get_context("spawn").Process(target=play, args=(1, yours, *there), daemon=True)
        other.start()
        seconds = play(0, mine, *there)
        other.join(TIMEOUT_S)
    print(machine(), end="\n\n")
    print(as_table(seconds))
    record.save(given.save, "exchanges", figures(seconds) | {"rounds": given.rounds})


def play(rank: int, pipe: Any, key: str, gloo_file: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Run one of the two processes. Returns `{size: {exchange: seconds of one exchange, by round}}`."""
    with entered(rank, pipe, key, gloo_file) as exchanges:
        found: dict[str, dict[str, list[float]]] = {}
        for size, (num_bytes, times) in SIZES.items():
            values = np.random.default_rng(rank).normal(size=num_bytes // 4).astype(np.float32)
            check_equal(exchanges, values)
            found[size] = {name: [] for name in exchanges}
            for n in range(rounds):
                for name in list(exchanges)[:: 1 if n % 2 else -1]:
                    found[size][name].append(timed(exchanges[name], values, times))
    return found


@contextmanager
def entered(rank: int, pipe: Any, key: str, gloo_file: Path) -> Iterator[dict[str, Exchange]]:
    """Context manager that yields the open exchanges, `{name: exchange}`."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{gloo_file}", rank=rank, world_size=2)
    buffers: dict[int, Any] = {}

    def gloo(values: Array) -> Array:
        buffer = buffers.setdefault(values.size, torch.empty(values.size))
        distributed.all_reduce(buffer.copy_(torch.from_numpy(values)))
        total: Array = buffer.numpy()
        return total

    installed = {each.name for each in list_plugins() if each.kind == "collective"}
    ours: dict[str, Collective] = {}
    for number, name in enumerate(each for each in OURS if each in installed):
        ours[name] = load_collective(name)(Membership(rank, 2, number, key, TIMEOUT_S))
        own = ours[name].contact()
        pipe.send(own)
        contacts = [own, pipe.recv()]
        ours[name].enter(contacts[:: 1 if rank == 0 else -1])
    try:
        yield {BARE: gloo} | {name: each.all_reduce for name, each in ours.items()}
    finally:
        for each in ours.values():
            each.close()
        distributed.destroy_process_group()


def check_equal(exchanges: dict[str, Exchange], values: Array) -> None:
    """Check that all exchanges return the same sum. This is also the first, slow use of each."""
    sums = [exchange(values) for exchange in exchanges.values()]
    for each in sums[1:]:
        np.testing.assert_array_equal(each, sums[0])


def timed(exchange: Exchange, values: Array, times: int) -> float:
    """Return the seconds of one exchange, the mean of many in a row."""
    exchange(values)  # comes together with the other process
    start = perf_counter()
    for _ in range(times):
        exchange(values)
    return (perf_counter() - start) / times


def as_table(seconds: dict[str, dict[str, list[float]]]) -> str:
    """Make a table of milliseconds and of ratios to shared memory."""
    rows = [
        [size, name, f"{1e3 * median(each):.3f}", f"{1e3 * min(each):.3f}", f"{ratio(by_name, name):.2f}"]
        for size, by_name in seconds.items()
        for name, each in by_name.items()
    ]
    return table(["array", "exchange", "median ms", "best ms", "of shared memory"], rows)


def ratio(by_name: dict[str, list[float]], name: str) -> float:
    return median_ratio(by_name[name], by_name["shared_memory"])


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
        if name != "shared_memory"
    }


if __name__ == "__main__":
    main()
