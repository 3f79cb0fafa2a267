"""What `predict` of one observation costs beside numpy's bare products of a 2x64 network.

`python benchmarks/predict.py [--peers PYTHON]`. The bare products are three times `x @ w + b`, and two times tanh, of
the same weights and the same row. Both are measured in turns of ten calls, in a process of their own on one core.
`--peers` adds `predict` of stable-baselines3 for a network of the same size, in its own process.
"""

import argparse
import json
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from alone import run_alone
from record import add_options, save
from report import machine, table

SPACES: dict[str, gym.Space[Any]] = {
    "Discrete": gym.spaces.Discrete(2),
    "Box": gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
    "Box, normalised": gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
}
PLUGRAD, PEER = "plugrad", "stable-baselines3"
CALLS = 10
"""Of one turn: short enough that the system seldom interrupts it."""


class Idle(gym.Env[Any, Any]):
    """An environment with the spaces of a case. It is never stepped.

    Args:
        actions: the name of the case.
    """

    def __init__(self, actions: str) -> None:
        self.observation_space = gym.spaces.Box(-5.0, 5.0, (4,), np.float32)
        self.action_space = SPACES[actions]


def measure(contestant: str, case: str, num_rounds: int) -> dict[str, list[float]]:
    """Measure in this process.

    Returns:
        `{"predict": microseconds of one call, "bare": the same}`, one number for each round; without the second for
        the peer.
    """
    observation = np.array([0.1, 0.2, -0.3, 0.4], np.float32)
    functions = _of_peer(case, observation) if contestant == PEER else _of_plugrad(case, observation)
    found: dict[str, list[float]] = {name: [] for name in functions}
    for n in range(num_rounds + 50):
        for name, function in functions.items():
            seconds = _seconds(function)
            if n >= 50:
                found[name].append(1e6 * seconds)
    return found


def _of_plugrad(case: str, observation: Any) -> dict[str, Callable[[], Any]]:
    from plugrad_ppo import PPOConfig

    config = PPOConfig().framework("numpy").environment(Idle, env_config={"actions": case}).debugging(seed=0)
    algorithm = config.env_runners(normalize_observations="normalised" in case).build_algo()
    policy = algorithm.get_policy()
    (weights,) = algorithm.learner_group.get_weights().values()
    layers = [
        (np.asarray(weights[f"pi.{name}.weight"], order="C"), weights[f"pi.{name}.bias"])
        for name in ("0", "1", "out")
    ]
    (w0, b0), (w1, b1), (w2, b2) = layers
    row = observation[None]

    def bare() -> Any:
        return np.tanh(np.tanh(row @ w0 + b0) @ w1 + b1) @ w2 + b2

    return {"predict": lambda: policy.predict(observation), "bare": bare}


def _of_peer(case: str, observation: Any) -> dict[str, Callable[[], Any]]:
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    model = PPO("MlpPolicy", Idle(case), device="cpu")  # 2x64 tanh by default
    return {"predict": lambda: model.predict(observation, deterministic=True)}


def _seconds(function: Callable[[], Any]) -> float:
    start = perf_counter()
    for _ in range(CALLS):
        function()
    return (perf_counter() - start) / CALLS


def _row(case: str, found: dict[str, list[float]], peer: dict[str, list[float]] | None) -> list[str]:
    """The cells of a case; the peer's are empty where it was not measured."""
    cells = [case]
    for figure in (median, min):
        predict, bare = figure(found["predict"]), figure(found["bare"])
        cells += [f"{bare:.1f}", f"{predict:.1f}", f"{predict - bare:.1f}", f"{predict / bare:.1f}"]
        cells += [] if peer is None else [f"{figure(peer['predict']):.1f}" if peer else ""]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has stable-baselines3")
    parser.add_argument("--measure", nargs=2, metavar=("CONTESTANT", "CASE"), help="measure here; print JSON")
    add_options(parser)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure, options.rounds)))
        return

    def of(contestant: str, case: str, python: str) -> dict[str, list[float]]:
        what = ("--measure", contestant, case, "--rounds", options.rounds)
        found: dict[str, list[float]] = run_alone("predict.py", *what, core=options.core, python=python)
        return found

    ours = {case: of(PLUGRAD, case, sys.executable) for case in SPACES}
    cases = SPACES if options.peers else ()
    theirs = {case: of(PEER, case, options.peers) for case in cases if "normalised" not in case}
    parts = ["bare products", "predict", "more", "ratio", *([PEER] if theirs else [])]
    header = [f"{figure} us: {part}" for figure in ("median", "best") for part in parts]
    none: dict[str, list[float]] | None = {} if theirs else None
    print(machine(), "\n")
    print(
        table(["actions", *header], [_row(case, each, theirs.get(case, none)) for case, each in ours.items()])
    )
    figures = {f"{case} more": median(each["predict"]) - median(each["bare"]) for case, each in ours.items()}
    save(options.save, "predict", figures, options.peers)


if __name__ == "__main__":
    main()
