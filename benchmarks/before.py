"""One PPO update with this plugrad beside an earlier one: `python benchmarks/before.py --before OLD/bin/python`.

OLD is a venv in which the earlier plugrad is installed. Rounds are paired as in `update.py`; a ratio above 1 means that
this plugrad is slower.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from contestants import ENTRIES, PLUGRAD
from race import Runner, median_ratio, rounds
from report import machine, table
from workload import CELLS, Cell

AIM = 1.03


def compare(options: argparse.Namespace, cell: Cell) -> list[list[str]]:
    """Rows of the table: each contestant of plugrad's, now and before."""
    lines = []
    for name in options.only or PLUGRAD:
        with ExitStack() as stack:
            started: dict[str, Runner] = {}
            for which, python in (("now", sys.executable), ("before", options.before)):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plugrad-benchmark-")))
                started[which] = Runner(
                    name, cell, options.seed, python, options.core, folder, folder / "inductor"
                )
                stack.callback(started[which].stop)
                started[which].ask("build")
                started[which].update(0, shuffle=False)  # compiles
            seconds = rounds(started, options.rounds)
        ratio = median_ratio(seconds["now"], seconds["before"])
        times = [f"{1e3 * median(seconds[each]):.1f}" for each in ("now", "before")]
        lines.append([ENTRIES[name].title, *times, f"{ratio:.3f}", "holds" if ratio <= AIM else "MISSED"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", required=True, metavar="PYTHON", help="of a venv with an earlier plugrad")
    parser.add_argument("--cell", action="append", choices=list(CELLS), help="default: small and wide")
    parser.add_argument("--only", nargs="+", choices=PLUGRAD, metavar="NAME", help=", ".join(PLUGRAD))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--core", type=int, default=0, help="the core that all are pinned to")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(machine())
    for cell in options.cell or ["small", "wide"]:
        print(f"\n## {cell}\n", flush=True)
        heads = ["who", "now ms", "before ms", "median of paired ratios", f"<= {AIM}"]
        print(table(heads, compare(options, CELLS[cell])), flush=True)


if __name__ == "__main__":
    main()
