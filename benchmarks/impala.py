"""Environment steps that IMPALA and APPO train on per second, with two env runners and one local learner, beside RLlib.

    python benchmarks/impala.py --peers PYTHON [--seconds 20] [--rounds 3]

CartPole-v1 with the same batch, fragments, environments and networks, and the other settings of RLlib 2.60. Each run is
a process of its own, and nothing else runs. Of each the best of the rounds counts. Env runners of plugrad are
processes, those of RLlib Ray actors. A step counts each time that an update learns from it.
"""

import argparse
import sys
from typing import Any

import record
from alone import run_alone
from report import machine, table

SETTINGS = {
    "train_batch_size": 500,
    "rollout_fragment_length": 50,
    "hiddens": [256, 256],
    "num_env_runners": 2,
}
ALGORITHMS = ("impala", "appo")
CONTESTANTS = {
    "plugrad torch": ("impala_plugrad.py", "torch"),
    "plugrad tf2": ("impala_plugrad.py", "tf2"),
    "RLlib": ("impala_rllib.py",),
}
WARM_UP = 8
"""Seconds after the first update that are not counted."""


def main() -> None:
    """Measure in turn, and print a line for each algorithm and number of environments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", required=True, help="interpreter with ray[rllib]")
    parser.add_argument("--seconds", type=float, default=20.0, help="that each run is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--envs", type=int, action="append", help="environments per env runner; 1 and 8")
    record.add_options(parser)
    options = parser.parse_args()
    print(machine(), "\n")
    figures: dict[str, float] = {"rounds": options.rounds, "seconds": options.seconds}
    lines = []
    for envs in options.envs or (1, 8):
        for algorithm in ALGORITHMS:
            best = race(algorithm, envs, options)
            ratios = {name: each / best["RLlib"] for name, each in best.items() if name != "RLlib"}
            words = [f"{each:,.0f}" for each in best.values()]
            lines.append([algorithm, str(envs), *words, *(f"{each:.1f}" for each in ratios.values())])
            figures |= {f"{algorithm} {envs}, {name}": each for name, each in best.items()}
            figures |= {f"{algorithm} {envs}, {name} per RLlib": each for name, each in ratios.items()}
    heads = [*CONTESTANTS, *(f"{name} / RLlib" for name in CONTESTANTS if name != "RLlib")]
    print(table(["trained steps/s", "environments per env runner", *heads], lines))
    record.save(options.save, "impala", figures, options.peers)


def race(algorithm: str, envs: int, options: argparse.Namespace) -> dict[str, float]:
    """The best of the rounds, `{contestant: trained steps per second}`."""
    best = dict.fromkeys(CONTESTANTS, 0.0)
    for _ in range(options.rounds):
        for name, (script, *arguments) in CONTESTANTS.items():
            python = options.peers if name == "RLlib" else sys.executable
            found: Any = run_alone(
                script, algorithm, envs, options.seconds, *arguments, core=None, python=python
            )
            print(name, algorithm, envs, found, flush=True)
            best[name] = max(best[name], found["steps_per_second"])
    return best


if __name__ == "__main__":
    main()
