"""What it costs to resume a run with a million rows of metrics: seconds, and the peak of memory in an own process.

`python benchmarks/long_metrics.py [--rows 1000000] [--columns 40]`

The process opens the run's two files as `plugrad train --resume` does, and appends a row with a new column. The peak is
the resident memory above what the process had before it opened them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from report import machine, table

RESUME = """
import json, resource, sys, time
from pathlib import Path
from plugrad.cli.metrics_files import MetricsFiles

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

folder, rows = Path(sys.argv[1]), int(sys.argv[2])
before, start, used = peak(), time.perf_counter(), time.process_time()
files = MetricsFiles(folder)
files.truncate(rows)
resumed, used = time.perf_counter(), time.process_time() - used
inode = files.csv.stat().st_ino
files.append({**files.history.last, "training_iteration": rows + 1, "a_new_column": 1.0})
print(json.dumps({
    "resume, s": resumed - start,
    "of a processor, s": used,
    "row with a new column, s": time.perf_counter() - resumed,
    "table written anew for it": inode != files.csv.stat().st_ino,
    "memory before, MB": before,
    "peak above it, MB": peak() - before,
}))
"""


def write_rows(folder: Path, number: int, columns: int) -> None:
    """The `metrics.jsonl` of a run with this many iterations."""
    with (folder / "metrics.jsonl").open("w") as file:
        for iteration in range(1, number + 1):
            row: dict[str, float] = {
                "training_iteration": iteration,
                "num_env_steps_sampled_lifetime": 10 * iteration,
            }
            row |= {f"learners/default_policy/metric_{n}": iteration + n / 1000 for n in range(columns)}
            row |= {"env_runners/episode_return_mean": float(iteration % 100)}
            file.write(json.dumps(row) + "\n")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, asked.rows, asked.columns)
        size = (folder / "metrics.jsonl").stat().st_size / 2**20
        command = [sys.executable, "-c", RESUME, name, str(asked.rows)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = {"rows": asked.rows, "metrics.jsonl, MB": size, **json.loads(done.stdout)}
    print(machine())
    print(
        table(
            ["what", "found"],
            [[key, f"{each:.2f}" if isinstance(each, float) else each] for key, each in found.items()],
        )
    )


if __name__ == "__main__":
    main()
