"""The cells of the zoo: an algorithm, an environment, the length and number of runs, and settings for every library.

Settings are those of rl-baselines3-zoo (hyperparams of April 2026, 22e3ff2), PPO's without state-dependent
exploration, SAC's and TD3's with networks of 2x256: for LunarLanderContinuous SAC's learning rate falls to zero at the
end of the run, and 10,000 steps are random. SAC and TD3 run on Pendulum-v1 with the defaults, which are equal in both
libraries but for TD3's networks (400 and 300 units in stable-baselines3); TD3 explores with noise of 0.1. PPO runs on
Hopper-v5 and HalfCheetah-v5 with the settings for v4, and again with those of CleanRL, and on Pong with those of all
Atari games: v5 repeats an action with a probability of 0.25, for every library. Published returns are those of rl-
baselines3-zoo's benchmark.md: one run.
"""

from dataclasses import asdict, replace

from zoo_cell import Cell, Published
from zoo_ppo_cells import PPO_CELLS
from zoo_settings import DQNSettings, OffPolicySettings, QRDQNSettings

RL_ZOO = "rl-baselines3-zoo 22e3ff2, hyperparams/sac.yml; networks of 2x256; 100,000 steps"
RL_ZOO_TD3 = "rl-baselines3-zoo 22e3ff2, hyperparams/td3.yml; networks of 2x256; 100,000 steps"
RL_ZOO_DQN = "rl-baselines3-zoo 22e3ff2, hyperparams/dqn.yml"
RL_ZOO_QRDQN = "rl-baselines3-zoo 22e3ff2, hyperparams/qrdqn.yml"
RL_ZOO_TQC = "rl-baselines3-zoo 22e3ff2, hyperparams/tqc.yml, without gSDE"
DEFAULTS = "defaults of plugrad and stable-baselines3"
DEFAULTS_TD3 = "defaults of plugrad; stable-baselines3 with the same networks (2x256) and noise (0.1)"
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
            source=source,
            published=published,
        )
        for algorithm, source, published in (
            ("sac", DEFAULTS, Published(-156.995, 88.714, 20_000)),
            ("td3", DEFAULTS_TD3, Published(-151.855, 90.227, 20_000)),
        )
    ),
    Cell(
        name="tqc-Pendulum-v1",
        algorithm="tqc",
        env="Pendulum-v1",
        steps=20_000,
        seeds=5,
        evaluate_every=1_000,
        final_episodes=100,
        options=OffPolicySettings(lr=1e-3),
        source=RL_ZOO_TQC,
        is_tuned=True,
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
        remark="With these settings the car reaches the top for the first time after 50,000 to 100,000 steps, in "
        "stable-baselines3 as in plugrad, and one of ten runs not at all. The published figure is of one run; the best "
        "of both libraries are as good.",
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
            remark=remark,
        )
        for env, published, remark in (
            ("Acrobot-v1", Published(-76.639, 11.752, 100_000), ""),
            (
                "LunarLander-v3",
                Published(154.382, 79.241, 100_000, "LunarLander-v2"),
                "With these settings the return rises and falls by 200 between two evaluations until the end, in "
                "stable-baselines3 as in plugrad. Two of plugrad's five runs had learned little by then. The published "
                "figure is of one run.",
            ),
        )
    ),
)
_DQN = {cell.env: cell for cell in _CELLS if cell.algorithm == "dqn"}
# rl-baselines3-zoo's settings of DQN and QR-DQN differ in the quantiles alone.
_QRDQN_CELLS = (
    replace(
        _DQN[env],
        name=f"qrdqn-{env}",
        algorithm="qrdqn",
        options=QRDQNSettings(**asdict(_DQN[env].options), num_quantiles=num_quantiles),
        source=RL_ZOO_QRDQN,
        published=Published(mean, std, _DQN[env].steps),
        remark="",
    )
    for env, num_quantiles, mean, std in (
        ("CartPole-v1", 10, 500.0, 0.0),
        ("MountainCar-v0", 25, -106.042, 15.536),
        ("Acrobot-v1", 25, -69.135, 9.967),
    )
)
CELLS = {cell.name: cell for cell in (*_CELLS, *_QRDQN_CELLS, *PPO_CELLS)}

SECONDS_RANDOM_STEPS = 100
"""Runs for seconds begin to learn early, whatever the cell says."""
