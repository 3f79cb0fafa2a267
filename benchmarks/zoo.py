"""Train what people train: algorithms on environments, with several seeds, beside stable-baselines3.

    python benchmarks/zoo.py --peers PYTHON --plan
    python benchmarks/zoo.py --peers PYTHON [--cell NAME ... | --only 'sac-*-s0' ...] [--seeds N] [--jobs N | --core N]
    python benchmarks/zoo.py --peers PYTHON --seconds-only --core N
    python benchmarks/zoo.py --table
    python benchmarks/zoo.py --page

A cell is an algorithm on an environment (`zoo_cells.py`). Each run of a cell, a library and a seed writes one file into
benchmarks/zoo: settings, versions, machine, learning curve and the returns at the end. A run that has its file is
skipped, so the command goes on where it was stopped. Last it prints the table of all files. `--plan` says what there
is to run, and how long it takes. `--page` makes docs/results.md and the README's table of the files.

Returns are valid on a busy machine, seconds are not: `--seconds-only` measures short runs, the libraries in turn on one
core of a quiet machine.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import record
from alone import HERE, run_alone
from report import machine
from zoo_cell import Cell
from zoo_cells import CELLS, SECONDS_RANDOM_STEPS
from zoo_evaluation import FIRST_SEED
from zoo_page import write_page
from zoo_plan import print_plan
from zoo_table import print_tables, read_files

PEER = "sb3"
BARE = "bare"
LIBRARIES = {
    "torch": ("zoo_plugrad.py", "torch"),
    "torch-compiled": ("zoo_plugrad.py", "torch-compiled"),
    "tf2": ("zoo_plugrad.py", "tf2"),
    "jax": ("zoo_plugrad.py", "jax"),
    PEER: ("zoo_sb3.py",),
    BARE: ("zoo_bare.py",),
}
"""`{library: (script, arguments...)}`; the script gets the cell and the seed as arguments more, and prints JSON."""
ONLY_SECONDS = ("torch-compiled", BARE)
"""Computes what another one computes, so that its returns would be the same; and the environments alone."""
PAGE, README = HERE.parent / "docs" / "results.md", HERE.parent / "README.md"
RECORDED = HERE / "offline"
PROBLEMS = HERE / "problems"
"""Files of `offline_mix.py` and `problems.py`, of which the page tells, too."""
QUIET_LOAD = 1.5
"""Of a machine on which a single pinned process runs, the load average is one."""


class Run(NamedTuple):
    """A cell, a library and a seed."""

    cell: Cell
    library: str
    seed: int

    @property
    def name(self) -> str:
        """As the file is called."""
        return f"{self.cell.name}-{self.library}-s{self.seed}"


def main() -> None:
    options = _options()
    print(machine(), "\n")
    options.runs.mkdir(parents=True, exist_ok=True)
    if options.page:
        write_page(options.runs, RECORDED, PROBLEMS, PAGE, README)
        return
    if options.plan:
        trained = [each for each in _libraries(options) if each not in ONLY_SECONDS]
        print_plan(read_files(options.runs, "*-s[0-9]*.json"), CELLS.values(), trained)
        return
    if options.seconds_only:
        measure_seconds(options)
    elif not options.table:
        train_all(options)
    print_tables(options.runs, PEER, BARE)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", metavar="PYTHON", help="with requirements-peers.txt; none: they are left out"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cell", nargs="+", choices=CELLS, metavar="NAME", help="these cells, all libraries")
    which.add_argument(
        "--only",
        nargs="+",
        default=["*"],
        metavar="PATTERN",
        help="runs by name, in this order: 'sac-*-sb3-s0'",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N-1 [default: as the cell says]")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--core", type=int, metavar="N", help="pin every run to this core")
    where.add_argument("--jobs", type=int, default=1, metavar="N", help="runs beside each other")
    parser.add_argument("--runs", type=Path, default=HERE / "zoo", metavar="DIR", help="where the files are")
    parser.add_argument("--rounds", type=int, default=3, help="of --seconds-only")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seconds-only", action="store_true", help="measure seconds with short runs")
    what.add_argument("--table", action="store_true", help="run nothing, print the table")
    what.add_argument("--plan", action="store_true", help="run nothing, print what there is to run")
    what.add_argument(
        "--page", action="store_true", help="run nothing, write docs/results.md and the README's table"
    )
    options = parser.parse_args()
    if options.cell:
        options.only = [f"{cell}-*" for cell in options.cell]
    if options.seconds_only and options.core is None:
        parser.error("--seconds-only needs --core: all libraries on the same one")
    return options


def train_all(options: argparse.Namespace) -> None:
    """Do the runs that have no file yet."""
    runs = list(dict.fromkeys(_chosen(options)))
    with ThreadPoolExecutor(options.jobs) as at_once:
        for _ in at_once.map(lambda run: _train(run, options), runs):
            pass


def _train(run: Run, options: argparse.Namespace) -> None:
    """Do one run, unless it has its file."""
    path = options.runs / f"{run.name}.json"
    if path.exists():
        return
    print(f"{run.name} ...", flush=True)
    load = os.getloadavg()[0]
    found = _run_script(run, options)
    load = max(load, os.getloadavg()[0])
    about = {
        "steps": run.cell.steps,
        "evaluation": {"deterministic": True, "first_seed": FIRST_SEED},
        "load_average": round(load, 2),
        "seconds_comparable": options.core is not None and load < QUIET_LOAD,
    }
    write(path, {**describe(run), "seed": run.seed, **about, **found})
    print(f"  {run.name}: mean return {sum(found['returns']) / len(found['returns']):.1f}", flush=True)


def measure_seconds(options: argparse.Namespace) -> None:
    """Short runs, the libraries in turn, every other round in the opposite order."""
    for cell in CELLS.values():
        libraries = [each for each in _libraries(options) if _is_asked(f"{cell.name}-{each}", options)]
        found: dict[str, list[dict[str, Any]]] = {library: [] for library in libraries}
        for number in range(options.rounds):
            for library in libraries[:: -1 if number % 2 else 1]:
                found[library].append(_run_script(Run(cell, library, number), options, "seconds"))
                seconds = found[library][-1]["seconds"]
                print(f"{cell.name}-{library}, round {number}: {seconds:.1f} s", flush=True)
        for library, rounds in found.items():
            about = describe(Run(cell, library, 0))
            if "random_steps" in about["settings"]:
                about["settings"] |= {"random_steps": SECONDS_RANDOM_STEPS}
            about |= {"warm_up": cell.warm_up, "steps": cell.timed_steps, "core": options.core}
            about |= {**rounds[-1], "seconds": [each["seconds"] for each in rounds]}
            write(options.runs / f"{cell.name}-{library}-seconds.json", about)


def describe(run: Run) -> dict[str, Any]:
    """What every file says of its run."""
    return {
        "cell": run.cell.name,
        "algorithm": run.cell.algorithm,
        "env": run.cell.env,
        "library": run.library,
        "settings": run.cell.settings,
        "source": run.cell.source,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": record.commit(),
        "machine": record.machine_kind(),
        "python": platform.python_version(),
    }


def write(path: Path, found: dict[str, Any]) -> None:
    """Write a file as a whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=1) + "\n")
    unfinished.rename(path)


def _chosen(options: argparse.Namespace) -> Iterator[Run]:
    libraries = [each for each in _libraries(options) if each not in ONLY_SECONDS]
    for pattern in options.only:
        for cell in CELLS.values():
            seeds = range(cell.seeds if options.seeds is None else min(options.seeds, cell.seeds))
            runs = (Run(cell, library, seed) for library in libraries for seed in seeds)
            yield from (run for run in runs if fnmatch(run.name, pattern))


def _is_asked(name: str, options: argparse.Namespace) -> bool:
    return any(fnmatch(name, pattern) for pattern in options.only)


def _libraries(options: argparse.Namespace) -> list[str]:
    return [each for each in LIBRARIES if each != PEER or options.peers]


def _run_script(run: Run, options: argparse.Namespace, *what: str) -> dict[str, Any]:
    script, *arguments = LIBRARIES[run.library]
    python = options.peers if run.library == PEER else sys.executable
    found: dict[str, Any] = run_alone(
        script, *arguments, run.cell.name, run.seed, *what, core=options.core, python=python
    )
    return found


if __name__ == "__main__":
    main()
