"""Settings of single modules: a module trains with its own as if they were those of all modules."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, largest_difference, with_modules

from plugrad import SingleAgentEpisode
from plugrad_bc import BCConfig
from plugrad_offline import CQLConfig, IQLConfig, MARWILConfig
from plugrad_ppo import PPOConfig

BOX = gym.spaces.Box(-1.0, 1.0, (2,))
CASES: dict[str, tuple[type[Any], gym.Space[Any], dict[str, Any]]] = {
    "ppo": (PPOConfig, TWO_ACTIONS, {"gamma": 0.5, "lambda_": 0.3}),
    "ppo, advantages as they are": (PPOConfig, TWO_ACTIONS, {"normalize_advantages": "none"}),
    "marwil": (MARWILConfig, TWO_ACTIONS, {"gamma": 0.5}),
    "marwil as bc": (MARWILConfig, TWO_ACTIONS, {"beta": 0.0}),
    "bc as marwil": (BCConfig, TWO_ACTIONS, {"beta": 2.0, "gamma": 0.5}),
    "iql": (IQLConfig, BOX, {"gamma": 0.5, "n_step": 3}),
    "cql": (CQLConfig, BOX, {"gamma": 0.5, "n_step": 3}),
}


def episode(module_id: str, space: gym.Space[Any]) -> SingleAgentEpisode:
    rng = np.random.default_rng(0)
    extra = {"action_dist_inputs": np.zeros((6, 2), np.float32), "action_logp": np.full(6, np.log(0.5))}
    box = isinstance(space, gym.spaces.Box)
    return SingleAgentEpisode(
        observations=rng.normal(size=(7, 3)).astype(np.float32),
        actions=rng.uniform(-1, 1, (6, 2)).astype(np.float32) if box else rng.integers(2, size=6),
        rewards=rng.normal(size=6),
        extra_model_outputs={} if box else extra,
        terminated=True,
        module_id=module_id,
    )


@pytest.mark.parametrize("case", CASES)
def test_a_module_trains_with_its_own_settings(case: str) -> None:
    config_class, space, own = CASES[case]
    config = with_modules(
        config_class()
        .framework("numpy")
        .environment(observation_space=OBSERVATIONS, action_space=space)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(minibatch_size=None, num_epochs=1, lr=0.1)
        .debugging(seed=0),
        *"ab",
    )
    overridden = config.rl_module(algorithm_config_overrides_per_module={"b": own})
    configs = {"plain": config, "own": config.training(**own), "overridden": overridden}
    found = {}
    for name, each in configs.items():
        learner = each.build_learner()
        learner.update(episodes=[episode(module_id, space) for module_id in "ab"])
        found[name] = learner.get_weights()
    assert largest_difference(found["overridden"]["a"], found["plain"]["a"]) == 0.0
    assert largest_difference(found["overridden"]["b"], found["own"]["b"]) == 0.0
    changes_weights = found["own"]["a"].keys() != found["plain"]["a"].keys()
    assert changes_weights or largest_difference(found["own"]["a"], found["plain"]["a"]) > 1e-4
