"""Time to save and restore a PPO learner of 2x256: plugrad, RLlib, and torch.save with one flush.

`python benchmarks/checkpoint.py [--peers PYTHON] [--rounds 31]`
"""

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import record
from race import Runner, median_ratio, runners
from report import machine, table
from workload import SAVED

TITLES = {
    "plugrad-torch-none": "plugrad torch, Learner.save_to_path",
    "plugrad-tf2-auto": "plugrad tf2, Learner.save_to_path",
    "twin-torch": "torch.save and fsync",
    "rllib": "RLlib, Learner.save_to_path",
}
Figures = dict[str, dict[str, list[float]]]


def rounds(started: dict[str, Runner], number: int, folder: Path) -> Figures:
    """Seconds and bytes by contestant, round by round; every other round runs in the opposite order."""
    found: Figures = {name: {"save": [], "flushing": [], "restore": [], "bytes": []} for name in started}
    for n in range(number):
        for name in list(started) if n % 2 == 0 else list(reversed(started)):
            path = str(folder / name)
            saved, restored = started[name].ask("save", path=path), started[name].ask("restore", path=path)
            took = {"save": saved["seconds"], "restore": restored["seconds"]}
            for what, value in {**saved, **took}.items():
                found[name].setdefault(what, []).append(value)
    return found


def _line(name: str, figures: dict[str, list[float]]) -> list[Any]:
    times = [
        f"{1e3 * shown:.1f}"
        for what in ("save", "flushing", "restore")
        for shown in (
            (median(figures[what]),) if what == "flushing" else (median(figures[what]), min(figures[what]))
        )
    ]
    return [TITLES[name], *times, f"{figures['bytes'][-1] / 1e6:.1f}"]


def _print_ratios(found: Figures) -> None:
    lines = [
        [
            f"{ours} / {theirs}",
            *(f"{median_ratio(found[ours][w], found[theirs][w]):.2f}" for w in ("save", "restore")),
        ]
        for ours in found
        for theirs in ("twin-torch", "rllib")
        if ours.startswith("plugrad") and theirs in found
    ]
    print(table(["median of paired ratios", "save", "restore"], lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument(
        "--peers", metavar="PYTHON", help="interpreter of the venv with requirements-peers.txt"
    )
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; default: the temporary one")
    record.add_options(parser)
    options = parser.parse_args()
    with (
        runners(list(TITLES), SAVED, seed=0, peers=options.peers, core=options.core) as started,
        tempfile.TemporaryDirectory(dir=options.folder, prefix="plugrad-checkpoint-") as folder,
    ):
        for runner in started.values():
            runner.update(0)
        rounds(started, 3, Path(folder))  # to warm up
        found = rounds(started, options.rounds, Path(folder))
    print(machine(), f"\n\n{options.rounds} rounds\n")
    header = ["who", "save ms", "best", "of it fsync", "restore ms", "best", "MB on disk"]
    print(table(header, [_line(name, figures) for name, figures in found.items()]), "\n")
    _print_ratios(found)
    figures = {
        f"{name} {what} ms": 1e3 * median(each[what])
        for name, each in found.items()
        for what in ("save", "restore")
    }
    record.save(options.save, "saving", figures, options.peers)


if __name__ == "__main__":
    main()
