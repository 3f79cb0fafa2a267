import gymnasium as gym
import numpy as np
from plugrad_mdqn import MDQNConfig, q_values_and_targets

from plugrad.testing.algorithm_suite import *


def test_targets_are_those_of_equation_3():
    spaces = {"observation_space": gym.spaces.Box(-1, 1, (3,)), "action_space": gym.spaces.Discrete(4)}
    config = MDQNConfig().framework("numpy").environment(**spaces).debugging(seed=1)
    config = config.training(gamma=0.9, least_log_policy=-0.2)
    learner = config.rl_module(model_config={"fcnet_hiddens": [4]}).build_learner()
    rng = np.random.default_rng(0)
    obs, new_obs = rng.uniform(-1, 1, (2, 16, 3)).astype(np.float32)
    rewards, actions = rng.normal(size=16).astype(np.float32), rng.integers(4, size=16)
    terminateds = np.arange(16) < 3
    batch = {
        "obs": obs,
        "actions": actions,
        "rewards": rewards,
        "new_obs": new_obs,
        "terminateds": terminateds,
    }
    module = learner.module["default_policy"]
    _, targets = q_values_and_targets(learner, "default_policy", config, batch, module.forward_train(batch))

    def soft(obs):
        q = module.forward_train({"obs": obs})["qf_preds"]
        scaled = 0.03 * np.log(np.exp(q / 0.03) / np.exp(q / 0.03).sum(-1, keepdims=True))
        return q, scaled, np.exp(scaled / 0.03)

    bonus = soft(obs)[1][np.arange(16), actions]
    assert 0 < (bonus < -0.2).sum() < 16
    q, scaled, policy = soft(new_obs)
    expected = rewards + 0.9 * np.clip(bonus, -0.2, 0.0)
    expected += 0.9 * ~terminateds * (policy * (q - scaled)).sum(-1)
    np.testing.assert_allclose(targets, expected, atol=1e-5)
