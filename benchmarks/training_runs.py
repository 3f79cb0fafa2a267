"""Compare trainings: every kind of run with every seed, each in a pinned process, with medians and those of a peer."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from math import inf
from statistics import median
from typing import Any

import record
from alone import run_alone
from report import machine, table

Found = dict[str, list[dict[str, Any]]]


def compare(
    about: str | None,
    runs: Mapping[str, Sequence[str]],
    *,
    peer: str | None,
    note: str,
    section: str,
    goal: float,
) -> None:
    """Run what the command line asks for, and print the table.

    Args:
        about: of the command.
        runs: `{name: (script, arguments...)}`; the script gets the seed as one argument more, and prints JSON last:
            solved, seconds, learning (part of the seconds), steps, mode.
        peer: the run that needs the peers' interpreter, with which the others are compared, or None.
        note: printed under the table.
        section: of results.json.
        goal: mean return at which a run is solved; saved with the figures.
    """
    options = _options(about)
    print(machine(), "\n")
    found = _run_all(options, runs, peer)
    print()
    print(
        table(
            ["medians over seeds", "solved", "seconds", "of it learning", "steps", "to sb3"],
            _lines(found, peer),
        )
    )
    print(f"\n{note}")
    figures = {"goal": goal, "seeds": options.seeds, **_figures(found)}
    record.save(options.save, section, figures, options.peers if peer else None)


def _options(about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--peers", metavar="PYTHON", help="interpreter of the venv with requirements-peers.txt"
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1")
    parser.add_argument("--core", type=int, default=0)
    record.add_options(parser)
    return parser.parse_args()


def _run_all(options: argparse.Namespace, runs: Mapping[str, Sequence[str]], peer: str | None) -> Found:
    """Run the kinds in turn."""
    kinds = [name for name in runs if name != peer or options.peers]
    if len(kinds) < len(runs):
        print("stable-baselines3 left out: give --peers PYTHON, the interpreter of its venv\n")
    found: Found = {name: [] for name in kinds}
    for seed in range(options.seeds):
        for name in kinds:
            script, *arguments = runs[name]
            python = options.peers if name == peer else sys.executable
            result = run_alone(script, *arguments, seed, core=options.core, python=python)
            found[name].append(result)
            print(f"{name}, seed {seed}: {_in_words(result)}", flush=True)
    return found


def _lines(found: Found, peer: str | None) -> list[list[str]]:
    theirs = _median(found[peer], "seconds") if peer in found else None
    lines = []
    for name, results in found.items():
        seconds = _median(results, "seconds")
        lines.append(
            [
                name,
                f"{sum(each['solved'] for each in results)} of {len(results)}",
                f"{seconds:.1f}",
                f"{_median(results, 'learning'):.1f}",
                f"{_median(results, 'steps'):.0f}",
                "" if theirs is None else f"{seconds / theirs:.2f}",
            ]
        )
    return lines


def _figures(found: Found) -> dict[str, float]:
    """Return medians over seeds by the name of the run. An infinite time has no figure."""
    figures: dict[str, float] = {}
    for name, results in found.items():
        figures[f"{name} solved"] = sum(each["solved"] for each in results)
        for key, unit in (("seconds", "s"), ("learning", "learning s"), ("steps", "steps")):
            if (value := _median(results, key)) < inf:
                figures[f"{name} {unit}"] = value
    return figures


def _in_words(result: Mapping[str, Any]) -> str:
    said = "solved" if result["solved"] else "NOT solved"
    return f"{said}, {result['seconds']:.1f} s, {result['steps']} steps ({result['mode']})"


def _median(results: Sequence[Mapping[str, Any]], key: str) -> float:
    """Return the median over the seeds. A run that was not solved counts as infinite."""
    return median(each[key] if each["solved"] else inf for each in results)
