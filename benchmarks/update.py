"""Time of one PPO update: plugrad, hand-written loops and peers. See `python benchmarks/update.py --help`."""

import argparse
from collections.abc import Callable
from statistics import median

import numpy as np
import record
from contestants import ENTRIES
from race import Runner, median_ratio, rounds, runners
from report import machine, table
from shapes import first, growth, rows
from workload import CELLS, Cell

TARGETS: dict[str, list[tuple[str, str, float]]] = {
    "small": [
        ("plugrad-jax-auto", "twin-jax", 1.1),
        ("plugrad-tf2-auto", "twin-tf2", 1.2),
        ("plugrad-tf2-auto", "rllib", 1 / 18),
        ("plugrad-tf2-auto", "sb3", 1 / 12),
        ("plugrad-torch-complete", "twin-torch-compiled", 1.0),
        ("plugrad-torch-complete", "rllib", 1 / 7),
        ("plugrad-torch-recorded", "twin-torch", 1.0),
        ("plugrad-torch-none", "twin-torch", 1.0),
        ("plugrad-torch-none", "rllib", 1 / 2),
    ],
    "wide": [
        ("plugrad-jax-auto", "twin-jax", 1.1),
        ("plugrad-tf2-auto", "twin-tf2", 1.1),
        ("plugrad-torch-complete", "twin-torch-compiled", 1.1),
        ("plugrad-torch-recorded", "twin-torch", 1.1),
        ("plugrad-torch-none", "twin-torch", 1.1),
        ("plugrad-tf2-auto", "sb3", 1.0),
        ("plugrad-torch-complete", "sb3", 1.0),
        ("plugrad-torch-none", "sb3", 1.0),
    ],
}
"""`(ours, theirs, the ratio that we aim at)`."""


def compare(options: argparse.Namespace, cell: Cell) -> dict[str, float]:
    """Run paired rounds of all contestants. Returns the figures to save."""
    names = options.only or list(ENTRIES)
    with runners(names, cell, seed=options.seed, peers=options.peers, core=options.core) as started:
        if len(started) < len(names):
            print("peers left out: give --peers PYTHON, the interpreter of their venv\n")
        agreement = _first_updates(started)
        seconds = rounds(started, options.rounds)
    for name, runner in started.items():
        print(f"{name}: {runner.what}")
    print(f"\n{cell.name}: {cell.num_steps} steps of {cell.minibatch_size} rows, {options.rounds} rounds\n")
    _print_times(seconds, agreement)
    print()
    ratios = _ratios(seconds, TARGETS[cell.name])
    return {**_settings(cell, options.rounds), **_times(seconds), **ratios}


def _settings(cell: Cell, number: int) -> dict[str, float]:
    return {"steps": cell.num_steps, "rows of a minibatch": cell.minibatch_size, "rounds": number}


def _times(seconds: dict[str, list[float]]) -> dict[str, float]:
    found = {}
    for name, each in seconds.items():
        found[f"{name} ms"] = 1e3 * median(each)
        found[f"{name} best ms"] = 1e3 * min(each)
    return found


def _first_updates(started: dict[str, Runner]) -> dict[str, float | None]:
    """Warm all contestants up with one update in the batch's own order. Equal formulas then have equal weights."""
    weights = {}
    for name, runner in started.items():
        runner.update(0, shuffle=False)
        weights[name] = runner.weights()
    standard = next((each for each in weights.values() if each is not None), None)
    return {
        name: None
        if each is None or standard is None
        else max(np.abs(each[k] - standard[k]).max().item() for k in each)
        for name, each in weights.items()
    }


def _print_times(seconds: dict[str, list[float]], agreement: dict[str, float | None]) -> None:
    lines = []
    for name, each in seconds.items():
        difference = agreement[name]
        shown = "not compared" if difference is None else f"{difference:.1e}"
        lines.append([ENTRIES[name].title, f"{1e3 * median(each):.1f}", f"{1e3 * min(each):.1f}", shown])
    print(table(["who", "median ms", "best ms", "weights after the first update"], lines))


def _ratios(seconds: dict[str, list[float]], targets: list[tuple[str, str, float]]) -> dict[str, float]:
    """Print and return `{"ours / theirs": median of paired ratios}` for the targets whose contestants ran."""
    found: dict[str, float] = {}
    lines = []
    for ours, theirs, target in targets:
        if ours in seconds and theirs in seconds:
            ratio = found[f"{ours} / {theirs}"] = median_ratio(seconds[ours], seconds[theirs])
            verdict = "holds" if ratio <= target else "MISSED"
            lines.append([f"{ours} / {theirs}", f"{ratio:.3f}", f"<= {target:.3f}", verdict])
    print(table(["median of paired ratios", "measured", "target", ""], lines))
    return found


Measure = Callable[[argparse.Namespace], dict[str, float]]
CELL_FUNCTIONS: dict[str, tuple[str, Measure]] = {
    "small": ("update small", lambda options: compare(options, CELLS["small"])),
    "wide": ("update wide", lambda options: compare(options, CELLS["wide"])),
    "rows": ("changing rows", rows),
    "growth": ("growing batches", growth),
    "first": ("first update", first),
}
"""`{cell: (section of results.json, what measures it)}`."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cell", action="append", choices=list(CELL_FUNCTIONS), help="default: small and wide"
    )
    parser.add_argument("--rounds", type=int, default=15, help="paired rounds of small and wide")
    parser.add_argument(
        "--peers", metavar="PYTHON", help="interpreter of the venv with requirements-peers.txt"
    )
    parser.add_argument("--only", nargs="+", choices=list(ENTRIES), metavar="NAME", help=", ".join(ENTRIES))
    parser.add_argument("--core", type=int, default=0, help="the core that all are pinned to")
    parser.add_argument("--seed", type=int, default=0)
    record.add_options(parser)
    return parser.parse_args()


def main() -> None:
    options = parse()
    print(machine())
    for cell in options.cell or ["small", "wide"]:
        print(f"\n## {cell}\n", flush=True)
        section, measure = CELL_FUNCTIONS[cell]
        record.save(options.save, section, measure(options), options.peers)


if __name__ == "__main__":
    main()
