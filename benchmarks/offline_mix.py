"""Train BC, IQL and CQL on what SAC sampled while it learned: a recording of mixed quality.

    python benchmarks/offline_mix.py --env Hopper-v5 --record-steps 100000 --gradient-steps 100000 --seeds 3
    python benchmarks/offline_mix.py --env Hopper-v5 --table

First SAC trains and is recorded, unless the recording is there. Then each algorithm trains from each seed. Each run
writes one file into the directory of `--runs`: settings, versions, the learning curve and the returns at the end. A run
that has its file is skipped, so the command goes on where it was stopped. Last it prints the table of all files.

All have the same networks and minibatches, 2x256 and 256 rows unless told otherwise, and no normalisation. BC's
learning rate is 3e-4, as that of the others' policies, of which CQL's is 1e-4. Returns are of greedy episodes, whose
environments have seeds of their own.
"""

import argparse
import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import record
from report import machine, table
from zoo_intervals import interquartile_mean, interval

from plugrad import get_algorithm
from plugrad.offline import load_episodes

ALGORITHMS: dict[str, dict[str, Any]] = {"bc": {"lr": 3e-4}, "iql": {}, "cql": {}}
"""`{algorithm: settings other than its defaults}`."""
STEPS_PER_UPDATE = 100
CURVE_POINTS, CURVE_EPISODES, FINAL_EPISODES = 10, 10, 50
HERE = Path(__file__).parent


def main() -> None:
    options = _options()
    print(machine(), "\n")
    data = options.runs / f"{options.env}-recording"
    if not options.table:
        record_sac(options, data)
        for algorithm in ALGORITHMS:
            for seed in range(options.seeds):
                train(options, algorithm, seed, data)
    print_tables(options, data)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="Hopper-v5", help="Gymnasium id [default: %(default)s]")
    parser.add_argument("--backend", default="torch", help="of all runs [default: %(default)s]")
    parser.add_argument(
        "--record-steps", type=int, default=100_000, metavar="N", help="environment steps of SAC"
    )
    parser.add_argument(
        "--gradient-steps", type=int, default=100_000, metavar="N", help="of each run, hundreds"
    )
    parser.add_argument(
        "--hiddens", type=int, nargs="+", default=[256, 256], metavar="N", help="widths of layers"
    )
    parser.add_argument("--minibatch-size", type=int, default=256, metavar="N", help="rows per gradient step")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N-1")
    parser.add_argument(
        "--only",
        nargs="+",
        default=["*"],
        metavar="PATTERN",
        help="runs by name: 'Hopper-v5-cql-torch-s0', 'iql-*'",
    )
    parser.add_argument("--runs", type=Path, default=HERE / "offline", metavar="DIR")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table")
    return parser.parse_args()


def record_sac(options: argparse.Namespace, data: Path) -> None:
    """Train SAC by its defaults and keep the episodes that it samples."""
    if data.is_dir():
        return
    print(f"recording {options.record_steps} steps of SAC on {options.env} ...", flush=True)
    part = data.with_name(f"{data.name}.part-{os.getpid()}")  # a recording that was stopped does not count
    algorithm = (
        get_algorithm("sac")()
        .environment(options.env)
        .framework(options.backend)
        .offline_data(output=str(part))
        .debugging(seed=1000)
        .build_algo()
    )
    steps = 0
    while steps < options.record_steps:
        steps = algorithm.train()["num_env_steps_sampled_lifetime"]
    algorithm.stop()
    part.rename(data)


def train(options: argparse.Namespace, name: str, seed: int, data: Path) -> None:
    """Do one run, unless it has its file."""
    cell = f"{name}-{options.backend}-s{seed}"
    path = options.runs / f"{options.env}-{cell}.json"
    if path.exists() or not any(fnmatch(each, p) for p in options.only for each in (cell, path.stem)):
        return
    print(f"{path.stem} ...", flush=True)
    rows = options.minibatch_size
    model_config = {"fcnet_hiddens": options.hiddens, "fcnet_activation": "relu"}
    config = (
        get_algorithm(name)()
        .environment(options.env)
        .framework(options.backend)
        .rl_module(model_config=model_config)
        .offline_data(input_=str(data))
        .training(minibatch_size=rows, train_batch_size=rows * STEPS_PER_UPDATE, **ALGORITHMS[name])
        .evaluation(evaluation_interval=None)
        .debugging(seed=seed)
    )
    algorithm = config.build_algo()
    updates = options.gradient_steps // STEPS_PER_UPDATE
    points = {updates * n // CURVE_POINTS for n in range(1, CURVE_POINTS + 1)}
    curve, seconds = [], 0.0
    for n in range(1, updates + 1):
        seconds += algorithm.train()["time/learn"]
        if n in points:
            mean = algorithm.evaluate(CURVE_EPISODES, seed=seed)["episode_return_mean"]
            curve.append([n * STEPS_PER_UPDATE, mean])
            print(f"  {n * STEPS_PER_UPDATE} steps: {mean:.1f}", flush=True)
    returns = [each.get_return() for each in algorithm.record(FINAL_EPISODES, seed=10_000 + seed).episodes]
    algorithm.stop()
    found = {
        "algorithm": name,
        "env": options.env,
        "backend": options.backend,
        "seed": seed,
        "gradient_steps": updates * STEPS_PER_UPDATE,
        "settings": {"minibatch_size": rows, "model_config": model_config, **ALGORITHMS[name]},
        "recording": about_recording(data),
        "commit": record.commit(),
        "machine": record.machine_kind(),
        "versions": record.installed(),
        "seconds_of_learning": round(seconds, 1),
        "curve": curve,
        "returns": returns,
    }
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n")
    part.replace(path)


def about_recording(data: Path) -> dict[str, float]:
    """The size of a recording and the returns of its episodes; those of the last tenth are SAC's at the end."""
    episodes = load_episodes(str(data)).episodes
    returns = np.array([each.get_return() for each in episodes])
    last = returns[-max(1, len(returns) // 10) :]
    return {
        "steps": sum(map(len, episodes)),
        "episodes": len(episodes),
        "return_mean": float(returns.mean()),
        "return_of_best_tenth": float(np.sort(returns)[-len(last) :].mean()),
        "return_of_last_tenth": float(last.mean()),
    }


def print_tables(options: argparse.Namespace, data: Path) -> None:
    if data.is_dir():
        rows = [[name, f"{value:.1f}"] for name, value in about_recording(data).items()]
        print(table([f"recording of SAC on {options.env}", ""], rows), "\n")
    found = [json.loads(path.read_text()) for path in sorted(options.runs.glob(f"{options.env}-*-s*.json"))]
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for each in found:
        groups.setdefault((each["algorithm"], each["backend"], each["gradient_steps"]), []).append(each)
    rows = []
    for (algorithm, backend, steps), runs in sorted(groups.items()):
        scores = [each["returns"] for each in runs]
        low, high = interval(scores)
        seconds = np.mean([each["seconds_of_learning"] for each in runs])
        means = [f"{np.mean(each):.0f}" for each in scores]
        rows.append(
            [
                algorithm,
                backend,
                steps,
                len(runs),
                f"{np.mean([np.mean(each) for each in scores]):.1f}",
                f"{interquartile_mean(scores):.1f} ({low:.1f} to {high:.1f})",
                ", ".join(means),
                f"{seconds:.0f}",
            ]
        )
    header = [
        "algorithm", "backend", "gradient steps", "seeds", "mean return",
        "interquartile mean (95 %)", "mean of each seed", "seconds of learning",
    ]  # fmt: skip
    print(table(header, rows))


if __name__ == "__main__":
    main()
