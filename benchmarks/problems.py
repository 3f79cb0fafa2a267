"""Train algorithms on problems that they were made for, beside the same algorithm without its idea.

    python benchmarks/problems.py [--backend torch] [--only 'bit-flip-*' ...] [--seeds 5]
    python benchmarks/problems.py --table

Each run writes one file into benchmarks/problems: settings, versions, the learning curve and the score at the end. A
run that has its file is skipped, so the command goes on where it was stopped. Last it prints the table of all files,
which docs/results.md has, too (`python benchmarks/zoo.py --page`).

A score is a mean of 100 new episodes. Hindsight (HER): bits to flip and an arm that reaches, the share of episodes that
reach their goal, with greedy actions. RND: MiniGrid's DoorKey-6x6, the return, with actions drawn as in training.
MAPPO: simple_spread of mpe2, the sum of the agents' returns, greedy. A recurrent SAC: Pendulum-v1 without velocities,
the return, greedy.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import record
from problem_envs import Reach, door_key, pendulum_without_velocity
from problems_page import problems_table
from report import machine

from plugrad import AlgorithmConfig
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_rnd import RNDConfig
from plugrad_sac import SACConfig

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from goals import BitFlip  # noqa: E402  (of tests)

EPISODES, POINTS = 100, 10
"""Episodes of a score, and scores of a learning curve."""
PACKAGES = ("plugrad", "torch", "tensorflow-cpu", "jax", "numpy", "gymnasium", "minigrid", "mpe2")
"""Whose versions a run notes."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is trained, with an idea and without it.

    Attributes:
        steps: environment steps of a run.
        runs: `{algorithm: what makes its config, from the number of steps}`; the one without the idea comes first.
        metric: of `Algorithm.evaluate`: the score.
        explore: score with actions drawn as in training.
    """

    steps: int
    runs: dict[str, Callable[[int], AlgorithmConfig]]
    metric: str = "episode_return_mean"
    explore: bool = False


def bit_flip(steps: int) -> DQNConfig:
    return (
        DQNConfig()
        .environment(BitFlip, env_config={"bits": 15})
        .env_runners(
            num_envs_per_env_runner=16, rollout_fragment_length=15, info_metrics={"is_success": "last"}
        )
        .rl_module(model_config={"fcnet_hiddens": [256]})
        .training(lr=1e-3, gamma=0.98, minibatch_size=128, train_batch_size=128 * 32)
        .training(num_steps_sampled_before_learning_starts=1_000, target_network_update_freq=960)
        .training(epsilon=[[0, 1.0], [steps // 5, 0.1]])
    )


def reach(steps: int) -> SACConfig:
    return (
        SACConfig()
        .environment(Reach)
        .env_runners(
            num_envs_per_env_runner=4, rollout_fragment_length=8, info_metrics={"is_success": "last"}
        )
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .training(lr=1e-3, gamma=0.95, minibatch_size=256, train_batch_size=256 * 16)
        .training(random_steps=1_000, num_steps_sampled_before_learning_starts=1_000)
    )


def door(config: Any) -> Any:
    config = config.environment(door_key).env_runners(num_envs_per_env_runner=8)
    return config.training(
        train_batch_size=2_048, minibatch_size=256, num_epochs=4, lr=1e-3, entropy_coeff=0.01
    )


def spread(steps: int) -> PPOConfig:
    return (
        PPOConfig()
        .environment("mpe2.simple_spread_v3:parallel_env")
        .env_runners(num_envs_per_env_runner=8)
        .training(train_batch_size=1_600, minibatch_size=400, num_epochs=10, lr=7e-4, entropy_coeff=0.01)
    )


def hidden_pendulum(**model_config: Any) -> SACConfig:
    return (
        SACConfig()
        .environment(pendulum_without_velocity)
        .env_runners(rollout_fragment_length=8)
        .rl_module(model_config={"fcnet_hiddens": [64], **model_config})
        .training(lr=1e-3, minibatch_size=256, train_batch_size=256 * 8)
        .training(random_steps=1_000, num_steps_sampled_before_learning_starts=1_000)
    )


HINDSIGHT = {"hindsight": "future", "hindsight_goals": 4}
LSTM = {"use_lstm": True, "lstm_cell_size": 64, "max_seq_len": 16}
PROBLEMS: dict[str, Problem] = {
    "bit-flip": Problem(
        steps=50_000,
        runs={"dqn": bit_flip, "dqn-hindsight": lambda steps: bit_flip(steps).training(**HINDSIGHT)},
        metric="info/is_success",
    ),
    "reach": Problem(
        steps=30_000,
        runs={"sac": reach, "sac-hindsight": lambda steps: reach(steps).training(**HINDSIGHT)},
        metric="info/is_success",
    ),
    "door-key": Problem(
        steps=200_000,
        runs={
            "ppo": lambda steps: door(PPOConfig()),
            "rnd": lambda steps: door(RNDConfig()).training(rnd_coeff=0.05, rnd_lr=1e-3),
        },
        explore=True,
    ),
    "spread": Problem(
        steps=200_000,
        runs={"ippo": spread, "mappo": lambda steps: spread(steps).multi_agent(critic_obs="agents")},
    ),
    "hidden-pendulum": Problem(
        steps=20_000,
        runs={"sac": lambda steps: hidden_pendulum(), "sac-lstm": lambda steps: hidden_pendulum(**LSTM)},
    ),
}


def main() -> None:
    options = _options()
    print(machine(), "\n")
    options.runs.mkdir(parents=True, exist_ok=True)
    if not options.table:
        for name, problem in PROBLEMS.items():
            for seed in range(options.seeds):
                for algorithm in problem.runs:
                    run(options, name, algorithm, seed)
    files = sorted(options.runs.glob("*-s[0-9]*.json"))
    print(problems_table(json.loads(path.read_text()) for path in files))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="torch", help="of all runs [default: %(default)s]")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 to N-1")
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="PATTERN", help="runs by name: 'reach-*-s0'"
    )
    parser.add_argument("--runs", type=Path, default=HERE / "problems", metavar="DIR")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table")
    return parser.parse_args()


def run(options: argparse.Namespace, name: str, algorithm: str, seed: int) -> None:
    """Do one run, unless it has its file."""
    problem = PROBLEMS[name]
    path = options.runs / f"{name}-{algorithm}-{options.backend}-s{seed}.json"
    if path.exists() or not any(fnmatch(path.stem, pattern) for pattern in options.only):
        return
    print(f"{path.stem} ...", flush=True)
    config = problem.runs[algorithm](problem.steps).framework(options.backend)
    trained = config.evaluation(evaluation_interval=None).debugging(seed=seed).build_algo()
    curve: list[tuple[int, float]] = []
    seconds, steps = 0.0, 0
    while steps < problem.steps:
        results = trained.train()
        seconds += results["time/iteration"]
        steps = int(results["num_env_steps_sampled_lifetime"])
        if steps * POINTS >= problem.steps * (len(curve) + 1):
            score = trained.evaluate(EPISODES, seed=seed, explore=problem.explore)[problem.metric]
            curve.append((steps, score))
            print(f"  {steps} steps, {seconds:.0f} s: {score:.3g}", flush=True)
    found = {
        "problem": name,
        "algorithm": algorithm,
        "backend": options.backend,
        "seed": seed,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": record.commit(),
        "machine": record.machine_kind(),
        "versions": record.installed(PACKAGES),
        "seconds": round(seconds, 1),
        "curve": curve,
        "score": curve[-1][1],
    }
    trained.stop()
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=1) + "\n")
    unfinished.rename(path)


if __name__ == "__main__":
    main()
