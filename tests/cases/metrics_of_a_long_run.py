"""The rows of a run's metrics stay in no memory, and a new column late in the run rewrites no long table."""

import tempfile
import time
import tracemalloc
from pathlib import Path

from case import check

from plugrad.cli.metrics_files import MetricsFiles

BACKENDS = ("numpy",)
ROWS = 10_000


def row(iteration, **more):
    counts = {"training_iteration": iteration, "num_env_steps_sampled_lifetime": iteration * 10}
    return {**counts, **{f"learners/p/number_{n}": iteration + n / 100 for n in range(30)}, **more}


with tempfile.TemporaryDirectory() as folder:
    files = MetricsFiles(Path(folder))
    for iteration in range(1, 1_001):
        files.append(row(iteration))
    tracemalloc.start()
    for iteration in range(1_001, 2_001):
        files.append(row(iteration))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    check(kept < 1_000 * 50, f"{kept / 1_000:.0f} bytes of memory are kept of each row")
    for iteration in range(2_001, ROWS + 1):
        files.append(row(iteration))
    # One row's time beside one row's, on the same machine: a rewrite takes thousands of times as long.
    start = time.perf_counter()
    for iteration in range(ROWS + 1, ROWS + 101):
        files.append(row(iteration))
    usual = (time.perf_counter() - start) / 100
    start = time.perf_counter()
    files.append(row(ROWS + 101, new=1.0))
    first = time.perf_counter() - start
    check(first < max(0.1, 200 * usual), f"a new column takes {first:.2f} s, another row {usual:.5f} s")
