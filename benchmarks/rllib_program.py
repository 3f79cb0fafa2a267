"""A program for RLlib and the same after `plugrad migrate`, seed by seed: their curves, side by side.

    python benchmarks/rllib_program.py --peers PYTHON

Both are those of `tests/data/rllib_program`; of each only the training is run: one learning rate, without a search.
RLlib's batches have a row more for each chunk of an episode, which its losses mask: with short episodes its minibatches
are more, have fewer rows that count, and advantages are standardised with them. So the original runs as it is, and once
more with these rows taken out before advantages are standardised and minibatches drawn. A row is an iteration; "differ"
says that the 95 % interval of the difference between the last two (Welch's t) excludes 0. Leaves with 1 if more than
one row in twenty says so.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

PROGRAMS = Path(__file__).parents[1] / "tests" / "data" / "rllib_program"
LENGTH, WIDTH = 5, 8
"""Of the corridor, and of the networks."""
PROGRAM_OF = {"RLlib": "original", "RLlib without masked rows": "original", "plugrad": "migrated"}
STATISTICS = {
    "training": ("env_runners", "episode_return_mean"),
    "steps to meet": ("env_runners", "steps_to_meet"),
    "evaluation": ("evaluation", "env_runners", "episode_return_mean"),
}
"""Where RLlib has what the callbacks and the evaluation found; plugrad's evaluation has no `env_runners` in between."""
SHARE_THAT_MAY_DIFFER = 1 / 20
"""Of intervals of 95 % as many miss if nothing differs."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", metavar="PYTHON", help="with requirements-peers.txt")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="iterations between two rows")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--run", choices=PROGRAM_OF, help="one run alone, as JSON")
    parser.add_argument("--seed", type=int, default=0, help="of --run")
    options = parser.parse_args()
    if options.run:
        print(json.dumps(train(options.run, options.seed, options.iterations, options.lr)))
        return
    if options.peers is None:
        parser.error("--peers is missing: the original runs with RLlib")
    sys.exit(compare(options))


def compare(options: argparse.Namespace) -> int:
    """Run both with each seed and print the rows; 1 if too many differ."""
    from alone import run_alone
    from report import machine, table

    curves: dict[str, list[Any]] = {name: [] for name in PROGRAM_OF}
    for seed in range(options.seeds):
        for name, program in PROGRAM_OF.items():
            python = options.peers if program == "original" else sys.executable
            settings = ("--seed", seed, "--iterations", options.iterations, "--lr", options.lr)
            run = run_alone(Path(__file__).name, "--run", name, *settings, core=None, python=python)
            curves[name].append(run)
            print(f"{name}, seed {seed}: {run['training'][-1]:.2f}", file=sys.stderr, flush=True)
    rows = []
    for statistic in STATISTICS:
        found = {name: np.array([run[statistic] for run in runs]) for name, runs in curves.items()}
        for at in range(options.every, options.iterations + 1, options.every):
            each = [values[:, at - 1] for values in found.values()]
            gap, half = difference(each[2], each[1])
            shown = [f"{values.mean():.2f} ± {values.std(ddof=1):.2f}" for values in each]
            verdict = "differ" if abs(gap) > half else "agree"
            rows.append([statistic, at, *shown, f"{gap:.2f} ± {half:.2f}", verdict])
    print(machine(), "\n")
    heads = ["statistic", "iteration", *PROGRAM_OF, "difference, 95 %", f"{options.seeds} seeds"]
    print(table(heads, rows))
    return int(sum(row[-1] == "differ" for row in rows) > SHARE_THAT_MAY_DIFFER * len(rows))


def difference(one: Any, other: Any) -> tuple[float, float]:
    """The difference of two means, and half of its interval of 95 % (Welch 1947, with Satterthwaite's degrees)."""
    from scipy.stats import t  # type: ignore[import-untyped]  # comes with jax

    variances = [values.var(ddof=1) / len(values) for values in (one, other)]
    if not sum(variances):
        return float(one.mean() - other.mean()), 0.0
    degrees = sum(variances) ** 2 / sum(
        variance**2 / (len(values) - 1) for variance, values in zip(variances, (one, other), strict=True)
    )
    return float(one.mean() - other.mean()), float(t.ppf(0.975, degrees) * np.sqrt(sum(variances)))


def train(name: str, seed: int, iterations: int, lr: float) -> dict[str, list[float]]:
    """Train one of `PROGRAM_OF` with one seed.

    Returns:
        `{statistic: its value after each iteration}`.
    """
    module = load(PROGRAM_OF[name])
    config = make(module, PROGRAM_OF[name]).debugging(seed=seed).training(lr=lr)
    if "without" in name:
        config = config.training(learner_class=without_masked_rows(module.WeightPenaltyLearner))
    algorithm = config.build_algo()
    curves: dict[str, list[float]] = {statistic: [] for statistic in STATISTICS}
    for _ in range(iterations):
        results = algorithm.train()
        for statistic, path in STATISTICS.items():
            curves[statistic].append(float(look_up(results, path)))
    algorithm.stop()
    return curves


def load(program: str) -> ModuleType:
    """Import a program, which is a script, without running it."""
    spec = spec_from_file_location("program", PROGRAMS / f"{program}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["program"] = module
    spec.loader.exec_module(module)
    return module


def make(module: ModuleType, program: str) -> Any:
    """The config of a program, with the environment that its last lines register."""
    meeting: Callable[..., Any] = module.Meeting
    if program == "original":
        module.register_env("meeting", meeting)
        # plugrad's means are always over the last 20 episodes.
        return module.make_config(LENGTH, WIDTH).reporting(metrics_num_episodes_for_smoothing=20)
    module.make_meeting = lambda **config: meeting(config)  # type: ignore[attr-defined]
    return module.make_config(LENGTH, WIDTH)


def without_masked_rows(learner_class: Any) -> Any:
    """A learner of RLlib's whose batches have the rows that count and no others."""

    class Learner(learner_class):  # type: ignore[misc]
        def _make_batch_if_necessary(self, training_data: Any) -> Any:
            batch = super()._make_batch_if_necessary(training_data=training_data)
            for module_id, rows in batch.policy_batches.items():
                counts = rows["loss_mask"].bool()
                kept = {column: values[counts] for column, values in rows.items()}
                advantages = kept["advantages"]  # standardised over all rows, so that theirs is another scale
                kept["advantages"] = (advantages - advantages.mean()) / advantages.std(correction=0)
                batch.policy_batches[module_id] = type(rows)(kept)
            return batch

    return Learner


def look_up(results: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """A value in RLlib's nested results, or in plugrad's, whose keys have a slash."""
    for keys in (path, tuple(key for key in path if key != "env_runners" or path[0] == key)):
        if "/".join(keys) in results:
            return results["/".join(keys)]
    found: Any = results
    for key in path:
        found = found[key]
    return found


if __name__ == "__main__":
    main()
