"""Makes tests/data/rliable.json: what rliable 1.2.0 says of scores of ours.

    PYTHON tests/rliable_fixture.py > tests/data/rliable.json

PYTHON has rliable 1.2.0, and pandas below 3, which it needs. The scores are the mean returns of the zoo's runs, cell by
cell, and one matrix of tasks.
"""

import json
import sys
from pathlib import Path
from statistics import mean

import numpy as np
from rliable import metrics
from rliable.library import get_interval_estimates

ZOO = Path(__file__).parents[1] / "benchmarks/zoo"
CELLS = (
    "ppo-CartPole-v1-torch",
    "ppo-Pendulum-v1-tf2",
    "dqn-LunarLander-v3-tf2",
    "sac-LunarLanderContinuous-v3-sb3",
)
REPETITIONS = 50_000


def main() -> None:
    """Print the fixture."""
    cases = [
        [[mean(json.loads(path.read_text())["returns"]) for path in sorted(ZOO.glob(f"{cell}-s[0-9]*.json"))]]
        for cell in CELLS
    ]
    cases.append(np.random.default_rng(0).normal(size=(4, 10)).round(3).tolist())
    found = []
    for scores in cases:
        runs_by_tasks = {"ours": np.asarray(scores).T}
        state = np.random.RandomState(0)
        points, intervals = get_interval_estimates(
            runs_by_tasks,
            lambda x: np.array([metrics.aggregate_iqm(x)]),
            reps=REPETITIONS,
            random_state=state,
        )
        low, high = np.ravel(intervals["ours"]).tolist()
        found.append({"scores": scores, "iqm": float(points["ours"][0]), "interval": [low, high]})
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
