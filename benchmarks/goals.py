"""Train until a goal is reached, and print seconds and steps of several seeds on both backends.

The mean return is that of the last 20 finished training episodes, checked after each iteration. Time starts just before
the algorithm is built. It includes compilation and excludes imports.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from contestant_plugrad import use_one_thread

Make = Callable[[str, int], Any]


def main(script: str, make_config: Make, goal: float, limit: int) -> None:
    """Start one process for each backend and seed, or do the run itself in such a process.

    Args:
        script: the file to run.
        make_config: config for a backend and a seed.
        goal: mean return to reach.
        limit: environment steps after which a run is given up.
    """
    parser = argparse.ArgumentParser(description=f"mean return {goal} within {limit} steps")
    parser.add_argument("--backends", nargs="+", default=["torch", "tf2"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--alone", action="store_true", help="train in this process and print JSON")
    options = parser.parse_args()
    for seed in options.seeds:
        for backend in options.backends:
            if options.alone:
                print(json.dumps(_train(make_config, backend, seed, goal, limit)))
                continue
            command = [sys.executable, script, "--alone", "--backends", backend, "--seeds", str(seed)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            print(
                f"{backend}, seed {seed}: {_in_words(json.loads(done.stdout.splitlines()[-1]))}", flush=True
            )


def _in_words(result: dict[str, Any]) -> str:
    said = "reached" if result["reached"] else "NOT reached"
    learning = f"{result['seconds']:.0f} s, {result['learning']:.0f} of them learning"
    return f"{said} {result['mean']:.2f} after {result['steps']} steps, {learning} ({result['mode']})"


def _train(make_config: Make, backend: str, seed: int, goal: float, limit: int) -> dict[str, Any]:
    use_one_thread(backend)
    __import__(f"plugrad_{backend}")
    start = perf_counter()
    algorithm = make_config(backend, seed).build_algo()
    steps, mean, learning = 0, float("-inf"), 0.0
    while mean < goal and steps < limit:
        results = algorithm.train()
        steps = int(results["num_env_steps_sampled_lifetime"])
        mean = float(results.get("env_runners/episode_return_mean", "-inf"))
        learning += float(results["time/learn"])
    seconds = perf_counter() - start
    mode = algorithm.learner_group.foreach_learner(lambda learner: learner.update_mode)[0]
    algorithm.stop()
    found = {"reached": mean >= goal, "mean": mean, "steps": steps, "mode": mode}
    return {**found, "seconds": seconds, "learning": learning}
