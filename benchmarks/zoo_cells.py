"""The cells of the zoo: an algorithm, an environment, the length and number of runs, and settings for every library.

Settings are those of rl-baselines3-zoo (hyperparams/sac.yml of April 2026, 22e3ff2) with networks of 2x256: for
LunarLanderContinuous the learning rate falls to zero at the end of the run, for MuJoCo 10,000 steps are random.
Pendulum-v1 runs with the defaults, plugrad's and stable-baselines3's being equal; TD3 explores with noise of 0.1.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One algorithm on one environment.

    Attributes:
        name: of the cell; its files begin with it.
        algorithm: short name.
        env: id of a Gymnasium environment.
        steps: environment steps of a run.
        seeds: number of runs of each library; 0: the cell is only for seconds.
        evaluate_every: environment steps between two points of the learning curve.
        curve_episodes: episodes for each point.
        final_episodes: episodes of the evaluation at the end.
        lr: learning rate, or `[[step, value], ...]`; None: the default.
        tau: how far target networks move in a step.
        random_steps: environment steps with random actions, before which nothing is learned.
        steps_per_update: environment steps, and then as many gradient steps.
        hiddens: of policy and critics.
        source: where the settings come from.
        is_tuned: whether plugrad has them as tuned settings; else it runs with its defaults.
    """

    name: str
    algorithm: str
    env: str
    steps: int
    seeds: int
    evaluate_every: int
    final_episodes: int
    curve_episodes: int = 10
    lr: float | list[list[float]] | None = None
    tau: float = 0.005
    random_steps: int = 100
    steps_per_update: int = 1
    hiddens: list[int] = field(default_factory=lambda: [256, 256])
    source: str
    is_tuned: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that the libraries share, those that are equal in all cells included."""
        own = ("lr", "tau", "random_steps", "steps_per_update", "hiddens")
        return {name: getattr(self, name) for name in own} | EVERYWHERE


EVERYWHERE = {"batch_size": 256, "gamma": 0.99, "capacity": 1_000_000, "td3_action_noise": 0.1}
"""Settings of all cells: rows per gradient step, discount, rows of the replay buffer, noise of TD3's actions."""

RL_ZOO = "rl-baselines3-zoo 22e3ff2, hyperparams/sac.yml; networks of 2x256; 100,000 steps"
DEFAULTS = "defaults of plugrad and stable-baselines3"
_CELLS = (
    Cell(
        name="sac-LunarLanderContinuous-v3",
        algorithm="sac",
        env="LunarLanderContinuous-v3",
        steps=100_000,
        seeds=3,
        evaluate_every=5_000,
        final_episodes=100,
        lr=[[0, 7.3e-4], [100_000, 0.0]],
        tau=0.01,
        random_steps=10_000,
        source=RL_ZOO,
        is_tuned=True,
    ),
    Cell(
        name="sac-HalfCheetah-v5",
        algorithm="sac",
        env="HalfCheetah-v5",
        steps=100_000,
        seeds=2,
        evaluate_every=5_000,
        final_episodes=20,
        random_steps=10_000,
        source=RL_ZOO,
        is_tuned=True,
    ),
    *(
        Cell(
            name=f"{algorithm}-Pendulum-v1",
            algorithm=algorithm,
            env="Pendulum-v1",
            steps=20_000,
            seeds=5,
            evaluate_every=1_000,
            final_episodes=100,
            source=DEFAULTS,
        )
        for algorithm in ("sac", "td3")
    ),
    Cell(
        name="sac-Pendulum-v1-8-steps-2x64",
        algorithm="sac",
        env="Pendulum-v1",
        steps=20_000,
        seeds=0,
        evaluate_every=1_000,
        final_episodes=100,
        steps_per_update=8,
        hiddens=[64, 64],
        source="for seconds only: 8 environment steps, then 8 gradient steps",
    ),
)
CELLS = {cell.name: cell for cell in _CELLS}

SECONDS_WARM_UP = 1_000
"""Environment steps before the clock of a run for seconds starts: what compiles has compiled."""
SECONDS_STEPS = 5_000
SECONDS_RANDOM_STEPS = 100
"""Runs for seconds begin to learn early, whatever the cell says."""
