"""docs/results.md, made of the zoo's files: returns beside published ones, and learning curves."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median, pstdev

import numpy as np
from offline_page import offline_sections
from problems_page import problems_sections
from report import table
from zoo_cell import Cell
from zoo_cells import CELLS
from zoo_intervals import NO_BREAK, mean_and_interval
from zoo_picture import draw_all
from zoo_settings import PPOSettings
from zoo_table import Files, read_files

from plugrad.cli.curves import Curve
from plugrad.cli.plot import COLORS, draw

OURS = ("torch", "tf2", "jax")
SHOWN = {**{each: each for each in OURS}, "sb3": "stable-baselines3"}
"""Libraries in the order of the page, with their names there."""
_COLORS = dict(zip(SHOWN.values(), COLORS, strict=False))
INTRODUCTION = """# Results

Each line is an algorithm on an environment, trained by `plugrad train` with settings that others published. A number
is the interquartile mean over seeds of the return at the end: 20 to 100 new episodes with deterministic actions. After
it stand its 95 % interval by bootstrap (Agarwal et al. 2021, arXiv:2108.13264) and the number of seeds. The columns
*torch*, *tf2* and *jax* are plugrad on each backend; *SB3* is stable-baselines3 on a machine of the same kind with the
same settings, but for one: it standardises PPO's advantages over each minibatch. plugrad does so on MuJoCo's
environments, BipedalWalker and Pong, and over the whole batch elsewhere (`normalize_advantages`).

*Published* is the benchmark of rl-baselines3-zoo: the mean of the episodes of one run and their standard deviation.
Some of its runs had another version of the environment, other steps or state-dependent exploration (gSDE); the line
says so. Where it is CleanRL's, all numbers of the line are means of the last training episodes, with actions drawn at
random: ours of the last 100. Its deviation is over runs. What an evaluation reached afterwards stands below.

![Each cell beside its published return](results/all.svg)

A point is an interquartile mean, its bar the interval; the grey bar is one published standard deviation on either side.
Beyond -1 and 1 nothing is drawn.

"""
README_BEGIN = "<!-- made by `python benchmarks/zoo.py --page` -->\n"
README_END = "<!-- end of results -->\n"
README_CELLS = (
    *("ppo-CartPole-v1", "ppo-LunarLander-v3", "ppo-Hopper-v5-cleanrl"),
    *("sac-LunarLanderContinuous-v3", "sac-Pendulum-v1", "td3-Pendulum-v1"),
)
REBUILD = """
Every run is [a file](../benchmarks/zoo) with its settings, seed, versions, curve and returns. A cell
is computed again by one command. If it was stopped, it continues with the runs that are missing:

```console
python benchmarks/zoo.py --cell {cell} --peers PYTHON
```

`PYTHON` is the interpreter of an environment with `benchmarks/requirements-peers.txt`. Without it, stable-baselines3 is
left out.
"""


def write_page(runs: Path, recorded: Path, problems: Path, page: Path, readme: Path) -> None:
    """Write the page, a picture for each cell into a folder with the page's name, and the README's table.

    Args:
        runs: folder of the zoo's files.
        recorded: folder of the files of `offline_mix.py`.
        problems: folder of the files of `problems.py`.
        page: the Markdown file.
        readme: the file with the table, between two comments.
    """
    files = read_files(runs, "*-s[0-9]*.json")
    page.write_text(page_text(files, recorded, problems))
    before, _, rest = readme.read_text().partition(README_BEGIN)
    after = rest.partition(README_END)[2]
    readme.write_text(before + README_BEGIN + readme_table(files) + README_END + after)
    for cell in _cells(files):
        picture = page.with_suffix("") / f"{cell.name}.svg"
        draw(
            _curves(files, cell),
            picture,
            what=f"mean return of {cell.curve_episodes} episodes",
            colors=_COLORS,
        )
    titles = {cell.name: _title(cell) for cell in _cells(files)}
    draw_all(files, _cells(files), titles, SHOWN, page.with_suffix("") / "all.svg")


def page_text(files: Files, recorded: Path, problems: Path) -> str:
    """The page's Markdown.

    Args:
        files: `{(cell, library): runs}`.
        recorded: folder of the files of `offline_mix.py`.
        problems: folder of the files of `problems.py`.

    Returns:
        A table of all cells, a section of problems, one per cell, and one per environment of recorded data.
    """
    cells = _cells(files)
    header = ["", "steps", *OURS, "SB3", "published"]
    rows = [_row(files, cell, SHOWN, f"[{_title(cell)}](#{_anchor(cell)})") for cell in cells]
    parts = [INTRODUCTION + table(header, rows), REBUILD.format(cell=cells[0].name)]
    sections = [_section(files, cell) for cell in cells]
    return "\n".join([*parts, *problems_sections(problems), *sections, *offline_sections(recorded)])


def readme_table(files: Files) -> str:
    """The README's table: `README_CELLS`, which are the same ones whatever they show."""
    rows = [_row(files, CELLS[name], OURS, _title(CELLS[name])) for name in README_CELLS]
    return table(["", "steps", *OURS, "published"], rows) + "\n"


def _cells(files: Files) -> list[Cell]:
    """Those that have a run of ours, by algorithm."""
    found = {cell for cell, library in files if library in OURS}
    return sorted((CELLS[name] for name in found), key=lambda cell: (cell.algorithm, cell.env, cell.name))


def _row(files: Files, cell: Cell, libraries: Iterable[str], name: str) -> list[object]:
    scores = (mean_and_interval(cell.means(files[cell.name, each]), _number) for each in libraries)
    return [name, _short_steps(cell.steps), *scores, _published(cell)]


def _number(value: float) -> str:
    """Returns below 100 have a decimal, those below 1 two."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def _short_steps(steps: int) -> str:
    return f"{steps // 1_000_000}M" if steps % 1_000_000 == 0 else f"{steps // 1_000}k"


def _published(cell: Cell) -> str:
    published = cell.published
    if published is None:
        return ""
    steps = "" if published.steps == cell.steps else _short_steps(published.steps)
    notes = ", ".join(note for note in (published.note, steps) if note)
    deviation = f"{published.std:.{0 if abs(published.mean) >= 100 else 1}f}"
    return f"{_number(published.mean)} ± {deviation}" + (
        f" <sub>{notes.replace(' ', NO_BREAK)}</sub>" if notes else ""
    )


def _section(files: Files, cell: Cell) -> str:
    remark = f"\n{cell.remark}\n" if cell.remark else ""
    return f"""## {_title(cell)}

```console
{shlex.join(["plugrad", *cell.command])}
```

![Mean return over environment steps, {_title(cell)}](results/{cell.name}.svg)

Settings: {cell.source}. {_other_means(files, cell)}{_seconds(files, cell)}Versions: {_versions(files, cell)}.
{remark}"""


def _title(cell: Cell) -> str:
    memory = " with an LSTM" if isinstance(cell.options, PPOSettings) and cell.options.lstm else ""
    env = cell.env.removeprefix("zoo_envs:").removeprefix("Flat")
    return f"{cell.algorithm.upper()}{memory} on {env}" + (", CleanRL's settings" if cell.is_cleanrls else "")


def _anchor(cell: Cell) -> str:
    return _title(cell).lower().replace(" ", "-").translate(str.maketrans("", "", "/,'"))


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


def _other_means(files: Files, cell: Cell) -> str:
    """Mean and deviation over runs of what the table does not show: of training, or of the evaluation afterwards."""
    in_training = cell.published is not None and cell.published.in_training
    name, words = "training_returns", "the last 100 training episodes"
    if in_training:
        name, words = "returns", "the evaluation afterwards, without exploration"
    means = {
        library: [mean(run[name]) for run in files[cell.name, library] if name in run] for library in OURS
    }
    shown = [f"{each} {mean(found):.0f} ± {pstdev(found):.0f}" for each, found in means.items() if found]
    has_training = any("training_returns" in run for each in OURS for run in files[cell.name, each])
    return f"Mean return of {words}: {', '.join(shown)}. " if shown and has_training else ""


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
