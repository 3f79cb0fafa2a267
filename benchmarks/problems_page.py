"""The table of `problems.py`, made of its files: what an idea adds on a problem that it was made for."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from report import table
from zoo_intervals import mean_and_interval

PROBLEMS = {
    "bit-flip": ("[15 bits to flip](replay.md#goals-in-hindsight)", "goals reached", "dqn", "dqn-hindsight"),
    "reach": ("[an arm that reaches](replay.md#goals-in-hindsight)", "goals reached", "sac", "sac-hindsight"),
    "door-key": ("[MiniGrid DoorKey-6x6](algorithms/rnd.md)", "return", "ppo", "rnd"),
    "spread": ("[simple_spread](multi-agent.md#what-critics-see)", "return", "ippo", "mappo"),
    "hidden-pendulum": ("[Pendulum without velocity](recurrence.md)", "return", "sac", "sac-lstm"),
}
"""`{problem: (title, what the score is, algorithm without the idea, algorithm with it)}`."""
ALGORITHMS = {
    "dqn": "DQN",
    "dqn-hindsight": "with hindsight",
    "sac": "SAC",
    "sac-hindsight": "with hindsight",
    "sac-lstm": "with an LSTM",
    "ppo": "PPO",
    "rnd": "RND",
    "ippo": "IPPO",
    "mappo": "MAPPO",
}
TEXT = """## Problems that need an idea

Each line is a problem that an algorithm was made for, trained without its idea and with it; all else is equal. The
score is of 100 new episodes: the share that reaches its goal, or the mean return, of all agents together. A number is
the interquartile mean over seeds, then its 95 % interval and the number of seeds. Actions are deterministic but for
DoorKey, where they are drawn at random as in training. DoorKey shows where an idea is not needed: PPO finds the reward
by itself, and bonuses do not help.

```console
python benchmarks/problems.py
```

{table}

Settings stand in [the script](../benchmarks/problems.py), the environments [beside it](../benchmarks/problem_envs.py).
Versions: {versions}.
"""


def problems_sections(folder: Path) -> list[str]:
    """The section of docs/results.md.

    Args:
        folder: of the files.

    Returns:
        Markdown; nothing where there are no files.
    """
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*-s[0-9]*.json"))]
    if not runs:
        return []
    versions = sorted({pair for run in runs for pair in run["versions"].items() if pair[0] != "plugrad"})
    shown = ", ".join(f"{name} {version}" for name, version in versions)
    return [TEXT.format(table=problems_table(runs), versions=shown)]


def problems_table(runs: Iterable[dict[str, Any]]) -> str:
    """A line for each problem and backend that was run, as Markdown.

    Args:
        runs: what the files say.
    """
    scores: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    steps: dict[tuple[str, str], int] = {}
    for run in runs:
        scores[run["problem"], run["backend"], run["algorithm"]].append(run["score"])
        steps[run["problem"], run["backend"]] = run["curve"][-1][0]
    rows = [
        [title, f"{steps[problem, backend] // 1_000}k", backend, what]
        + [
            f"{ALGORITHMS[each]} {mean_and_interval(scores[problem, backend, each], _number)}"
            for each in (without, with_it)
        ]
        for problem, (title, what, without, with_it) in PROBLEMS.items()
        for backend in ("torch", "tf2", "jax")
        if (problem, backend) in steps
    ]
    return table(["", "steps", "backend", "score", "without", "with"], rows)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
