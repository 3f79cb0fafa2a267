import gymnasium as gym
import numpy as np
import pytest
from plugrad_redq import REDQConfig
from plugrad_redq.network import POLICY_ACTIONS, QF_PREDS
from plugrad_redq.plugin import NEXT_NOISE, SUBSET, redq_targets

from plugrad.testing.algorithm_suite import *


@pytest.mark.parametrize("asked", [1, 2, 5])
def test_targets_are_those_of_equation_1(asked):
    space = gym.spaces.Box(-1, 1, (2,))
    config = REDQConfig().framework("numpy").environment(observation_space=space, action_space=space)
    config = config.training(gamma=0.9, num_critics=5, num_critics_of_targets=asked)
    learner = config.rl_module(model_config={"fcnet_hiddens": [4]}).build_learner()
    rng = np.random.default_rng(0)
    obs, new_obs, noise = rng.uniform(-1, 1, (3, 8, 2)).astype(np.float32)
    rewards, drawn = rng.normal(size=8).astype(np.float32), rng.normal(size=(8, 5)).astype(np.float32)
    batch = {
        "obs": obs,
        "actions": noise,
        "rewards": rewards,
        "new_obs": new_obs,
        "terminateds": np.arange(8) < 3,
    }
    module = learner.module["default_policy"]
    found = redq_targets(
        learner,
        "default_policy",
        config,
        {**batch, NEXT_NOISE: noise, SUBSET: drawn},
        module.forward_train(batch),
    )
    inputs = module.forward_train({"obs": new_obs})["action_dist_inputs"]
    actions, logp = module.get_train_action_dist_cls().from_logits(inputs).rsample_with_logp(noise)
    values = module.forward_train({"obs": new_obs, POLICY_ACTIONS: actions})[QF_PREDS]
    least = [min(values[i, row] for i in np.argsort(drawn[row])[:asked]) for row in range(8)]
    expected = rewards + 0.9 * (np.arange(8) >= 3) * (np.array(least) - logp)  # exp(log_alpha) is 1
    np.testing.assert_allclose(found, expected, atol=1e-5)
