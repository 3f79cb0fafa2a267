"""The cells of the zoo: an algorithm, an environment, the length and number of runs, and settings for every library.

Settings are those of rl-baselines3-zoo (hyperparams of April 2026, 22e3ff2), SAC's with networks of 2x256: for
LunarLanderContinuous the learning rate falls to zero at the end of the run, for MuJoCo 10,000 steps are random.
Pendulum-v1 runs with the defaults, plugrad's and stable-baselines3's being equal; TD3 explores with noise of 0.1.
PPO runs on Hopper-v5 with the settings for Hopper-v4, and on Pong with those of all Atari games: v5 repeats an action
with a probability of 0.25, for every library.
"""

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from zoo_settings import OffPolicySettings, PPOSettings


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
        options: settings of the algorithm.
        source: where the settings come from.
        is_tuned: whether plugrad has them as tuned settings.
    """

    name: str
    algorithm: str
    env: str
    steps: int
    seeds: int
    evaluate_every: int
    final_episodes: int
    curve_episodes: int = 10
    options: OffPolicySettings | PPOSettings
    source: str
    is_tuned: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the libraries share, for a run's file."""
        return asdict(self.options)

    @property
    def is_atari(self) -> bool:
        """Whether the environment is an Atari game that gets the standard preprocessing."""
        return isinstance(self.options, PPOSettings) and self.options.atari

    @property
    def warm_up(self) -> int:
        """Environment steps of whole updates before the clock of a run for seconds starts."""
        return self._whole_updates(SECONDS_WARM_UP)

    @property
    def timed_steps(self) -> int:
        """Environment steps of whole updates while that clock runs."""
        return self._whole_updates(SECONDS_STEPS)

    def _whole_updates(self, steps: int) -> int:
        return ceil(steps / self.options.steps_per_update) * self.options.steps_per_update


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
        options=OffPolicySettings(lr=[[0, 7.3e-4], [100_000, 0.0]], tau=0.01, random_steps=10_000),
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
        options=OffPolicySettings(random_steps=10_000),
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
            options=OffPolicySettings(),
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
        options=OffPolicySettings(steps_per_update=8, hiddens=[64, 64]),
        source="for seconds only: 8 environment steps, then 8 gradient steps",
    ),
    Cell(
        name="ppo-Hopper-v5",
        algorithm="ppo",
        env="Hopper-v5",
        steps=1_000_000,
        seeds=3,
        evaluate_every=51_200,
        final_episodes=50,
        options=PPOSettings(
            num_envs=1,
            num_steps=512,
            batch_size=32,
            num_epochs=5,
            lr=9.80828e-5,
            clip_param=0.2,
            gamma=0.999,
            lambda_=0.99,
            entropy_coeff=0.00229519,
            vf_loss_coeff=0.835671,
            grad_clip=0.7,
            hiddens=[256, 256],
            log_std_init=-2.0,
            ortho_init=False,
            normalize=True,
        ),
        source="rl-baselines3-zoo 22e3ff2, hyperparams/ppo.yml, Hopper-v4",
        is_tuned=True,
    ),
    Cell(
        name="ppo-Pong-v5",
        algorithm="ppo",
        env="ALE/Pong-v5",
        steps=300_000,
        seeds=1,
        evaluate_every=25_600,
        curve_episodes=5,
        final_episodes=20,
        options=PPOSettings(
            num_envs=8,
            num_steps=128,
            batch_size=256,
            num_epochs=4,
            lr=[[0, 2.5e-4], [10_000_000, 0.0]],
            clip_param=[[0, 0.1], [10_000_000, 0.0]],
            entropy_coeff=0.01,
            vf_loss_coeff=0.5,
            hiddens=[512],
            atari=True,
        ),
        source="rl-baselines3-zoo 22e3ff2, hyperparams/ppo.yml, atari; the first 300,000 of 10,000,000 steps",
        is_tuned=True,
    ),
)
CELLS = {cell.name: cell for cell in _CELLS}

SECONDS_WARM_UP = 1_000
"""Environment steps before the clock of a run for seconds starts: what compiles has compiled."""
SECONDS_STEPS = 5_000
SECONDS_RANDOM_STEPS = 100
"""Runs for seconds begin to learn early, whatever the cell says."""
