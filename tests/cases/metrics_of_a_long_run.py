"""The rows of a run's metrics stay in no memory, and a new column late in the run rewrites no long table."""

import tempfile
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
    table = Path(folder, "metrics.csv")
    before = table.stat()
    files.append(row(ROWS + 1, new=1.0))
    after = table.stat()
    grown = after.st_size - before.st_size
    check(
        (before.st_ino, True) == (after.st_ino, 0 <= grown < 10_000),
        f"a new column rewrites the table: {grown} bytes more, in file {after.st_ino} after {before.st_ino}",
    )
