"""The cells of the zoo: an algorithm, an environment, the length and number of runs, and settings for every library.

Settings are those of rl-baselines3-zoo (hyperparams of April 2026, 22e3ff2), PPO's without state-dependent
exploration, SAC's and TD3's with networks of 2x256: for LunarLanderContinuous SAC's learning rate falls to zero at the
end of the run, and 10,000 steps are random. SAC and TD3 run on Pendulum-v1 with the defaults, plugrad's and
stable-baselines3's being equal; TD3 explores with noise of 0.1. PPO runs on Hopper-v5 and HalfCheetah-v5 with the
settings for v4, and on Pong with those of all Atari games: v5 repeats an action with a probability of 0.25, for every
library. Published returns are those of rl-baselines3-zoo's benchmark.md: one run.
"""

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from zoo_settings import DQNSettings, OffPolicySettings, PPOSettings, Settings


@dataclass(frozen=True)
class Published:
    """What others published: the mean and the standard deviation of the returns of one run's episodes.

    Attributes:
        mean: of the returns.
        std: of the returns.
        steps: environment steps of that run.
        note: how the run differs from ours; "": it does not.
    """

    mean: float
    std: float
    steps: int
    note: str = ""


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
        published: what others published; None: nothing for so many steps.
        remark: on its result, for the page of results.
    """

    name: str
    algorithm: str
    env: str
    steps: int
    seeds: int
    evaluate_every: int
    final_episodes: int
    curve_episodes: int = 10
    options: Settings
    source: str
    is_tuned: bool = False
    published: Published | None = None
    remark: str = ""

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
RL_ZOO_TD3 = "rl-baselines3-zoo 22e3ff2, hyperparams/td3.yml; networks of 2x256; 100,000 steps"
RL_ZOO_PPO = "rl-baselines3-zoo 22e3ff2, hyperparams/ppo.yml"
RL_ZOO_DQN = "rl-baselines3-zoo 22e3ff2, hyperparams/dqn.yml"
NO_GSDE = "with gSDE"
LUNAR_LANDER = PPOSettings(
    num_envs=16, num_steps=1024, num_epochs=4, gamma=0.999, lambda_=0.98, entropy_coeff=0.01
)
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
    Cell(
        name="td3-LunarLanderContinuous-v3",
        algorithm="td3",
        env="LunarLanderContinuous-v3",
        steps=100_000,
        seeds=3,
        evaluate_every=5_000,
        final_episodes=100,
        options=OffPolicySettings(gamma=0.98, capacity=200_000, random_steps=10_000),
        source=RL_ZOO_TD3,
        is_tuned=True,
    ),
    Cell(
        name="td3-HalfCheetah-v5",
        algorithm="td3",
        env="HalfCheetah-v5",
        steps=100_000,
        seeds=2,
        evaluate_every=5_000,
        final_episodes=20,
        options=OffPolicySettings(random_steps=10_000),
        source=RL_ZOO_TD3,
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
            published=published,
        )
        for algorithm, published in (
            ("sac", Published(-156.995, 88.714, 20_000)),
            ("td3", Published(-151.855, 90.227, 20_000)),
        )
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
        name="ppo-CartPole-v1",
        algorithm="ppo",
        env="CartPole-v1",
        steps=100_000,
        seeds=5,
        evaluate_every=5_120,
        final_episodes=100,
        options=PPOSettings(
            num_envs=8,
            num_steps=32,
            batch_size=256,
            num_epochs=20,
            lr=[[0, 1e-3], [100_000, 0.0]],
            clip_param=[[0, 0.2], [100_000, 0.0]],
            gamma=0.98,
            lambda_=0.8,
        ),
        source=RL_ZOO_PPO,
        is_tuned=True,
        published=Published(500.0, 0.0, 100_000),
    ),
    Cell(
        name="ppo-Acrobot-v1",
        algorithm="ppo",
        env="Acrobot-v1",
        steps=1_000_000,
        seeds=5,
        evaluate_every=40_960,
        final_episodes=100,
        options=PPOSettings(num_envs=16, num_steps=256, num_epochs=4, lambda_=0.94, normalize=True),
        source=RL_ZOO_PPO,
        is_tuned=True,
        published=Published(-73.506, 18.201, 1_000_000),
    ),
    Cell(
        name="ppo-MountainCar-v0",
        algorithm="ppo",
        env="MountainCar-v0",
        steps=1_000_000,
        seeds=5,
        evaluate_every=51_200,
        final_episodes=100,
        options=PPOSettings(num_envs=16, num_steps=16, num_epochs=4, lambda_=0.98, normalize=True),
        source=RL_ZOO_PPO,
        is_tuned=True,
        published=Published(-110.423, 19.473, 1_000_000),
    ),
    Cell(
        name="ppo-Pendulum-v1",
        algorithm="ppo",
        env="Pendulum-v1",
        steps=100_000,
        seeds=5,
        evaluate_every=8_192,
        final_episodes=100,
        options=PPOSettings(num_envs=4, num_steps=1024, num_epochs=10, lr=1e-3, gamma=0.9),
        source=RL_ZOO_PPO,
        is_tuned=True,
        published=Published(-172.225, 104.159, 100_000, NO_GSDE),
    ),
    Cell(
        name="ppo-LunarLander-v3",
        algorithm="ppo",
        env="LunarLander-v3",
        steps=1_000_000,
        seeds=5,
        evaluate_every=49_152,
        final_episodes=100,
        options=LUNAR_LANDER,
        source=RL_ZOO_PPO,
        is_tuned=True,
        published=Published(242.119, 31.823, 1_000_000, "LunarLander-v2"),
    ),
    Cell(
        name="ppo-LunarLanderContinuous-v3",
        algorithm="ppo",
        env="LunarLanderContinuous-v3",
        steps=1_000_000,
        seeds=5,
        evaluate_every=49_152,
        final_episodes=100,
        options=LUNAR_LANDER,
        source=RL_ZOO_PPO,
        is_tuned=True,
        published=Published(270.863, 32.072, 1_000_000, "LunarLanderContinuous-v2"),
    ),
    Cell(
        name="ppo-BipedalWalker-v3",
        algorithm="ppo",
        env="BipedalWalker-v3",
        steps=1_000_000,
        seeds=3,
        evaluate_every=65_536,
        final_episodes=50,
        options=PPOSettings(
            num_envs=32, num_steps=2048, num_epochs=10, clip_param=0.18, gamma=0.999, normalize=True
        ),
        source=f"{RL_ZOO_PPO}; 1,000,000 of 5,000,000 steps",
        is_tuned=True,
        published=Published(287.939, 2.448, 5_000_000),
    ),
    Cell(
        name="dqn-CartPole-v1",
        algorithm="dqn",
        env="CartPole-v1",
        steps=50_000,
        seeds=5,
        evaluate_every=2_560,
        final_episodes=100,
        options=DQNSettings(
            lr=2.3e-3,
            batch_size=64,
            ortho_init=True,
            capacity=100_000,
            learning_starts=1_000,
            steps_per_update=256,
            gradient_steps=128,
            target_every=10,
            epsilon_steps=8_000,
            epsilon=0.04,
        ),
        source=RL_ZOO_DQN,
        is_tuned=True,
        published=Published(500.0, 0.0, 50_000),
        remark="With these settings the return falls and recovers until the end, in stable-baselines3 as in plugrad: a "
        "run may reach 500 and, 2,560 steps later, 20. Where the last step falls decides. The published figure is of "
        "one run. To keep a good policy, stop there: `--stop-reward 475`.",
    ),
    Cell(
        name="dqn-MountainCar-v0",
        algorithm="dqn",
        env="MountainCar-v0",
        steps=120_000,
        seeds=5,
        evaluate_every=8_000,
        final_episodes=100,
        options=DQNSettings(
            lr=4e-3,
            batch_size=128,
            gamma=0.98,
            capacity=10_000,
            learning_starts=1_000,
            steps_per_update=16,
            gradient_steps=8,
            target_every=600,
            epsilon_steps=24_000,
            epsilon=0.07,
            report_every=800,
        ),
        source=RL_ZOO_DQN,
        is_tuned=True,
        published=Published(-100.849, 9.925, 120_000),
    ),
    *(
        Cell(
            name=f"dqn-{env}",
            algorithm="dqn",
            env=env,
            steps=100_000,
            seeds=5,
            evaluate_every=5_000,
            final_episodes=100,
            options=DQNSettings(
                lr=6.3e-4,
                batch_size=128,
                capacity=50_000,
                steps_per_update=4,
                gradient_steps=4,
                target_every=250,
                epsilon_steps=12_000,
                epsilon=0.1,
                report_every=1_000,
            ),
            source=RL_ZOO_DQN,
            is_tuned=True,
            published=published,
        )
        for env, published in (
            ("Acrobot-v1", Published(-76.639, 11.752, 100_000)),
            ("LunarLander-v3", Published(154.382, 79.241, 100_000, "LunarLander-v2")),
        )
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
            activation="relu",
            log_std_init=-2.0,
            ortho_init=False,
            normalize=True,
        ),
        source=f"{RL_ZOO_PPO}, Hopper-v4",
        is_tuned=True,
        published=Published(2410.435, 10.026, 1_000_000, "Hopper-v3"),
        remark="With these settings the hopper learns within 20,000 steps to stand still, which gives a return of about "
        "1,000: one for each step. It seldom learns more, in stable-baselines3 as in plugrad. The published run was on "
        "another version of the environment.",
    ),
    Cell(
        name="ppo-HalfCheetah-v5",
        algorithm="ppo",
        env="HalfCheetah-v5",
        steps=1_000_000,
        seeds=3,
        evaluate_every=51_200,
        final_episodes=20,
        options=PPOSettings(
            num_envs=1,
            num_steps=512,
            batch_size=64,
            num_epochs=20,
            lr=2.0633e-5,
            clip_param=0.1,
            gamma=0.98,
            lambda_=0.92,
            entropy_coeff=0.000401762,
            vf_loss_coeff=0.58096,
            grad_clip=0.8,
            hiddens=[256, 256],
            activation="relu",
            log_std_init=-2.0,
            ortho_init=False,
            normalize=True,
        ),
        source=f"{RL_ZOO_PPO}, HalfCheetah-v4",
        is_tuned=True,
        published=Published(5819.099, 663.530, 1_000_000, "HalfCheetah-v3"),
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
            activation="relu",
            atari=True,
        ),
        source=f"{RL_ZOO_PPO}, atari; the first 300,000 of 10,000,000 steps",
        is_tuned=True,
    ),
)
CELLS = {cell.name: cell for cell in _CELLS}

SECONDS_WARM_UP = 1_000
"""Environment steps before the clock of a run for seconds starts: what compiles has compiled."""
SECONDS_STEPS = 5_000
SECONDS_RANDOM_STEPS = 100
"""Runs for seconds begin to learn early, whatever the cell says."""
