"""Hindsight experience replay reaches goals of which DQN alone never sees a reward (arXiv:1707.01495, figure 1)."""

import numpy as np
from goals import BitFlip

from plugrad_dqn import DQNConfig

BITS, EPISODES, ITERATIONS = 8, 100, 120


def share_of_goals(backend, hindsight):
    """Of those that the trained policy reaches."""
    algorithm = (
        DQNConfig()
        .framework(backend, compile="auto" if backend == "jax" else "none")
        .environment(BitFlip, env_config={"bits": BITS})
        .env_runners(num_envs_per_env_runner=8, rollout_fragment_length=BITS)
        .rl_module(model_config={"fcnet_hiddens": [64]})
        .training(
            **{"hindsight": hindsight, "lr": 2e-3, "gamma": 0.9, "epsilon": 0.2},
            **{"train_batch_size": 1024, "minibatch_size": 128, "target_update": "step", "tau": 0.05},
            **{"num_steps_sampled_before_learning_starts": 128, "target_network_update_freq": 0},
        )
        .debugging(seed=0)
        .build_algo()
    )
    for _ in range(ITERATIONS):
        algorithm.train()
    policy, envs = algorithm.get_policy(), [BitFlip(BITS) for _ in range(EPISODES)]
    seen = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
    reached = np.zeros(EPISODES, bool)
    for _ in range(BITS):
        actions, _ = policy.predict({key: np.stack([each[key] for each in seen]) for key in seen[0]})
        steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        seen = [step[0] for step in steps]
        reached |= [step[2] for step in steps]
    algorithm.stop()
    return reached.mean()


def test_bits_are_flipped_to_the_goal_with_hindsight_and_not_without(backend):
    assert share_of_goals(backend, "future") > 0.9
    assert share_of_goals(backend, None) < 0.3
