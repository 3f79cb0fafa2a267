"""What `sample()` costs beside the same environments stepped with ready actions.

`python benchmarks/sampling.py [--case NAME ...]`. A case is an environment, a vectorization mode and a number of
environments. Three contestants take turns of one fragment each, in one process: the bare vector environment with ready
actions (Gymnasium's own classes), `sample()` with a policy function that returns the same actions, and `sample()` of
an `Algorithm` with PPO's networks of 2x64. The unit is microseconds per environment step.

All run on one core but "async", whose two processes have the cores that there are; it is compared with "sync".
"""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from alone import run_alone
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from record import add_options, save
from report import machine, table

from plugrad.sampling import make_env_runner
from plugrad_ppo import PPOConfig

HOPPER, CARTPOLE = "Hopper-v5", "CartPole-v1"
BARE, READY, POLICY = "bare", "ready actions", "policy"
NUM_ACTIONS = 64
"""Ready actions of all environments, taken in turn."""


@dataclass(frozen=True)
class Case:
    """What is sampled.

    Args:
        env: Gymnasium's id.
        mode: `vectorization_mode`.
        num_envs: environments that step together.
        num_steps: of each, in one fragment.
    """

    env: str
    mode: str
    num_envs: int
    num_steps: int

    @property
    def name(self) -> str:
        """Of the case, in tables and for `--case`."""
        return f"{self.env} {self.mode} {self.num_envs}"

    @property
    def core(self) -> int | None:
        """Where it runs; None: on all cores."""
        return None if self.mode == "async" else 0


CASES = [
    Case(HOPPER, "sync", 8, 128),
    Case(HOPPER, "async", 8, 128),
    Case(CARTPOLE, "sync", 8, 256),
    *(
        Case(CARTPOLE, mode, n, 64)
        for mode in ("vector_entry_point", "envpool")
        for n in (64, 256, 1024, 4096)
    ),
]


def measure(case: Case, num_rounds: int) -> dict[str, list[float]]:
    """Measure in this process.

    Args:
        case: what is sampled.
        num_rounds: turns of each contestant.

    Returns:
        `{contestant: microseconds per environment step in each round}`.
    """
    contestants = _contestants(case)
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for n in range(num_rounds + 2):
        for name, fragment in contestants.items():
            start = perf_counter()
            fragment()
            seconds = perf_counter() - start
            if n >= 2:
                found[name].append(1e6 * seconds / (case.num_envs * case.num_steps))
    return found


def _contestants(case: Case) -> dict[str, Callable[[], Any]]:
    config = (
        PPOConfig()
        .framework("numpy")
        .environment(case.env)
        .env_runners(
            num_envs_per_env_runner=case.num_envs,
            rollout_fragment_length=case.num_steps,
            vectorization_mode=case.mode,
        )
        .debugging(seed=0)
    )
    algorithm = config.build_algo()
    ready = _ready_actions(algorithm.env_runner.action_space, case.num_envs)
    actions = cycle(ready)
    runner = make_env_runner(config=config, act=lambda _: {"actions": next(actions)}, seed=0)
    bare = {} if case.mode == "async" else {BARE: partial(_step, _bare(case), ready, case.num_steps)}
    return {**bare, READY: runner.sample, POLICY: algorithm.sample}


def _ready_actions(space: gym.Space[Any], num_envs: int) -> list[Any]:
    space.seed(0)
    return [np.stack([space.sample() for _ in range(num_envs)]) for _ in range(NUM_ACTIONS)]


def _bare(case: Case) -> Any:
    if case.mode == "sync":
        makers = [partial(gym.make, case.env)] * case.num_envs
        envs: Any = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    elif case.mode == "envpool":
        import envpool

        envs = envpool.make_gymnasium(case.env, num_envs=case.num_envs, num_threads=1)
    else:
        envs = gym.make_vec(case.env, case.num_envs, vectorization_mode=case.mode)
    envs.reset()
    return envs


def _step(envs: Any, actions: list[Any], num_steps: int) -> None:
    for t in range(num_steps):
        envs.step(actions[t % NUM_ACTIONS])


def _row(case: Case, found: Mapping[str, list[float]]) -> list[str]:
    cells = [case.name]
    for figure in (min, median):
        bare, ready, policy = (figure(found.get(name, [np.nan])) for name in (BARE, READY, POLICY))
        numbers = (bare, ready, policy, ready - bare, policy - bare)
        cells += ["" if np.isnan(each) else f"{each:.2f}" for each in numbers]
    return [*cells, f"{1e6 / min(found[POLICY]):,.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--case", nargs="+", default=[each.name for each in CASES], metavar="NAME")
    parser.add_argument("--measure", metavar="NAME", help="measure one case here; print JSON")
    add_options(parser)
    options = parser.parse_args()
    modes = PPOConfig.fields()["vectorization_mode"].choices or ()
    by_name = {case.name: case for case in CASES if case.mode in modes}
    if options.measure:
        print(json.dumps(measure(by_name[options.measure], options.rounds)))
        return
    chosen = [case for name, case in by_name.items() if name in options.case]
    found = {
        case: run_alone("sampling.py", "--measure", case.name, "--rounds", options.rounds, core=case.core)
        for case in chosen
    }
    parts = [BARE, READY, POLICY, "more than bare: ready actions", "more than bare: policy"]
    header = [f"{figure} us: {part}" for figure in ("best", "median") for part in parts]
    print(machine(), "\n")
    print(table(["case", *header, "steps/s, policy"], [_row(*each) for each in found.items()]))
    best = {f"{case.name} {name}": min(each) for case, them in found.items() for name, each in them.items()}
    save(options.save, "sampling", best)


if __name__ == "__main__":
    main()
