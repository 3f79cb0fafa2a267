"""docs/results.md, made of the zoo's files: returns beside published ones, and learning curves."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from offline_page import offline_sections
from report import table
from zoo_cell import Cell
from zoo_cells import CELLS
from zoo_intervals import interquartile_mean, interval
from zoo_table import Files, read_files

from plugrad.cli.curves import Curve
from plugrad.cli.plot import draw

SHOWN = {"torch": "torch", "tf2": "tf2", "sb3": "stable-baselines3"}
"""Libraries in the order of the page, with their names there."""
INTRODUCTION = """# Results

Each cell is an algorithm on an environment, trained by `plugrad train` with settings that others published. A number
is the interquartile mean over seeds of the return at the end: 20 to 100 new episodes with deterministic actions. The
brackets hold its 95 % interval by bootstrap (Agarwal et al. 2021, arXiv:2108.13264), and the number of seeds comes
after them. The columns *torch* and *tf2* are plugrad on each backend; stable-baselines3 ran on the same machine with
the same settings, but for one: it standardises PPO's advantages over each minibatch. plugrad does so on Hopper,
HalfCheetah, BipedalWalker and Pong, and over the whole batch elsewhere (`normalize_advantages`).

*Published* is the benchmark of rl-baselines3-zoo: the mean of the episodes of one run and their standard deviation.
Some of its runs had another version of the environment, other steps or state-dependent exploration (gSDE); the cell
says so.

"""
IN_README = ("torch", "tf2", "published")
"""Columns of the README's table."""
README_BEGIN = "<!-- made by `python benchmarks/zoo.py --page` -->\n"
README_END = "<!-- end of results -->\n"
REBUILD = """
Every run is [a file](../benchmarks/zoo) with its settings, seed, versions, curve and returns. A cell
is computed again by one command. If it was stopped, it continues with the runs that are missing:

```console
python benchmarks/zoo.py --cell {cell} --peers PYTHON
```

`PYTHON` is the interpreter of an environment with `benchmarks/requirements-peers.txt`. Without it, stable-baselines3 is
left out.
"""


def write_page(runs: Path, recorded: Path, page: Path, readme: Path) -> None:
    """Write the page, a picture for each cell into a folder with the page's name, and the README's table.

    Args:
        runs: folder of the zoo's files.
        recorded: folder of the files of `offline_mix.py`.
        page: the Markdown file.
        readme: the file with the table, between two comments.
    """
    files = read_files(runs, "*-s[0-9]*.json")
    page.write_text(page_text(files, recorded))
    before, _, rest = readme.read_text().partition(README_BEGIN)
    after = rest.partition(README_END)[2]
    readme.write_text(before + README_BEGIN + readme_table(files) + README_END + after)
    for cell in _cells(files):
        picture = page.with_suffix("") / f"{cell.name}.svg"
        draw(_curves(files, cell), picture, what=f"mean return of {cell.curve_episodes} episodes")


def page_text(files: Files, recorded: Path) -> str:
    """The page's Markdown.

    Args:
        files: `{(cell, library): runs}`.
        recorded: folder of the files of `offline_mix.py`.

    Returns:
        A table of all cells, a section per cell, and one per environment of recorded data.
    """
    cells = _cells(files)
    header = ["algorithm", "environment", "steps", *SHOWN.values(), "published"]
    rows = [_row(files, cell) for cell in cells]
    parts = [INTRODUCTION + table(header, rows), REBUILD.format(cell=cells[0].name)]
    return "\n".join([*parts, *(_section(files, cell) for cell in cells), *offline_sections(recorded)])


def readme_table(files: Files) -> str:
    """The README's table: the cells in which both backends have run three times or more."""
    cells = [
        cell for cell in _cells(files) if all(len(files[cell.name, each]) >= 3 for each in IN_README[:2])
    ]
    rows = [
        [
            f"{cell.algorithm.upper()} on {cell.env}",
            f"{cell.steps:,}",
            *(_score(files[cell.name, each]) for each in IN_README[:2]),
            _published(cell),
        ]
        for cell in cells
    ]
    return table(["", "steps", *IN_README], rows) + "\n"


def _cells(files: Files) -> list[Cell]:
    """Those that have a run of ours, by algorithm."""
    found = {cell for cell, library in files if library in ("torch", "tf2")}
    return sorted((CELLS[name] for name in found), key=lambda cell: (cell.algorithm, cell.env))


def _row(files: Files, cell: Cell) -> list[object]:
    name = f"[{cell.env}](#{_anchor(cell)})"
    return [
        f"[{cell.algorithm.upper()}](algorithms/{cell.algorithm}.md)",
        name,
        f"{cell.steps:,}",
        *(_score(files[cell.name, each]) for each in SHOWN),
        _published(cell),
    ]


def _score(runs: Sequence[dict[str, Any]]) -> str:
    if not runs:
        return ""
    means = [[mean(run["returns"]) for run in runs]]
    low, high = interval(means)
    return f"{interquartile_mean(means):.1f} [{low:.1f}, {high:.1f}], {len(runs)}"


def _published(cell: Cell) -> str:
    published = cell.published
    if published is None:
        return ""
    steps = "" if published.steps == cell.steps else f"{published.steps:,} steps"
    notes = ", ".join(note for note in (published.note, steps) if note)
    return f"{published.mean:.1f} ± {published.std:.1f}" + (f" ({notes})" if notes else "")


def _section(files: Files, cell: Cell) -> str:
    ours = [*files[cell.name, "torch"], *files[cell.name, "tf2"]]
    command = ours[0]["command"].partition(" --backend")[0]
    remark = f"\n{cell.remark}\n" if cell.remark else ""
    return f"""## {_title(cell)}

```console
{command}
```

![Mean return over environment steps, {_title(cell)}](results/{cell.name}.svg)

Settings: {cell.source}. {_seconds(files, cell)}Versions: {_versions(files, cell)}.
{remark}"""


def _title(cell: Cell) -> str:
    return f"{cell.algorithm.upper()} on {cell.env}"


def _anchor(cell: Cell) -> str:
    return _title(cell).lower().replace(" ", "-").replace("/", "")


def _versions(files: Files, cell: Cell) -> str:
    """Of all runs; a package that had several has them all."""
    found = [
        pair for library in SHOWN for run in files[cell.name, library] for pair in run["versions"].items()
    ]
    return ", ".join(f"{name} {version}" for name, version in sorted(set(found)) if name != "plugrad")


def _seconds(files: Files, cell: Cell) -> str:
    """Of quiet runs alone: seconds of the others say nothing."""
    quiet = {
        library: [run["seconds"] for run in files[cell.name, library] if run["seconds_comparable"]]
        for library in SHOWN
    }
    shown = [f"{SHOWN[library]} {median(seconds):.0f}" for library, seconds in quiet.items() if seconds]
    return f"Seconds of a run on one core: {', '.join(shown)}. " if shown else ""


def _curves(files: Files, cell: Cell) -> list[Curve]:
    curves = []
    for library, label in SHOWN.items():
        for run in files[cell.name, library]:
            timesteps, returns = np.asarray(run["curve"], dtype=float).T
            curves.append(
                Curve(
                    label=label,
                    timesteps=timesteps,
                    returns=returns,
                    low=returns,
                    high=returns,
                    threshold=None,
                )
            )
    return curves
