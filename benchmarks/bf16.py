"""Learning in bfloat16 beside float32: `python benchmarks/bf16.py [--backends torch jax tf2] [--seeds 5] [--core N]`.

PPO on CartPole-v1 and SAC on Pendulum-v1, with plugrad's defaults. A run is solved when the mean return of 20 greedy
episodes, the same ones in each look, is at least 475 or -200. Runs of one task, backend and seed begin with equal
weights and environments. What is done stays in the file of `--results`, a line each, and is not run again.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from alone import run_alone
from contestant_plugrad import use_one_thread
from report import machine, table

from plugrad.algorithm_config import AlgorithmConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

EPISODES, EVALUATION_SEED = 20, 1_000_000


class Task(NamedTuple):
    """An environment to solve: looked at every so many steps, until it is solved or the limit is reached."""

    config: type[AlgorithmConfig]
    env: str
    goal: float
    every: int
    limit: int


TASKS = {
    "PPO": Task(PPOConfig, "CartPole-v1", 475.0, 8_192, 160_000),
    "SAC": Task(SACConfig, "Pendulum-v1", -200.0, 1_000, 20_000),
}
PRECISIONS = ("float32", "bf16")


def run(name: str, backend: str, precision: str, seed: int) -> dict[str, Any]:
    """Train once in this process.

    Args:
        name: of the task.
        backend: that computes.
        precision: of `config.framework`.
        seed: of everything but the evaluations.

    Returns:
        Whether it is solved, environment steps, seconds without evaluations, and the last mean return.
    """
    task = TASKS[name]
    use_one_thread(backend)
    config = task.config().environment(task.env).framework(backend, precision=precision).debugging(seed=seed)
    algorithm = config.build_algo()
    steps, looked, mean, seconds = 0, 0, float("-inf"), 0.0
    while mean < task.goal and steps < task.limit:
        before = perf_counter()
        steps = int(algorithm.train()["num_env_steps_sampled_lifetime"])
        seconds += perf_counter() - before
        if steps // task.every > looked:
            looked = steps // task.every
            mean = float(algorithm.evaluate(EPISODES, seed=EVALUATION_SEED)["episode_return_mean"])
    algorithm.stop()
    return {"solved": mean >= task.goal, "steps": steps, "seconds": seconds, "return": mean}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", nargs="+", default=["torch", "jax", "tf2"])
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1")
    parser.add_argument("--core", type=int, default=None)
    parser.add_argument("--results", type=Path, default=Path("bf16.jsonl"))
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)  # what this script calls itself with
    given = parser.parse_args()
    if given.run:
        name, backend, precision, seed = given.run
        print(json.dumps(run(name, backend, precision, int(seed))))
        return
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    found = {tuple(each["run"]): each for each in map(json.loads, lines)}
    for backend in given.backends:
        for seed in range(given.seeds):
            for name in TASKS:
                for precision in PRECISIONS:
                    key = (name, backend, precision, seed)
                    if key not in found:
                        found[key] = {"run": key, **run_alone("bf16.py", "--run", *key, core=given.core)}
                        with given.results.open("a") as file:
                            file.write(json.dumps(found[key]) + "\n")
    rows = []
    for name, task in TASKS.items():
        for backend in given.backends:
            for precision in PRECISIONS:
                runs = [found[name, backend, precision, seed] for seed in range(given.seeds)]
                solved = f"{sum(each['solved'] for each in runs)} of {len(runs)}"
                middle = (f"{median(each[key] for each in runs):.0f}" for key in ("steps", "seconds"))
                returns = ", ".join(f"{each['return']:.0f}" for each in runs)
                rows.append([f"{name}, {task.env}", f"{backend} {precision}", solved, *middle, returns])
    print(machine())
    print(table(["task", "who", "solved", "steps", "seconds", "returns at the end"], rows))


if __name__ == "__main__":
    main()
