"""Our algorithms go through the suite that every author's goes through."""

import pytest

from plugrad import AlgorithmConfig
from plugrad.testing.algorithm_suite import *  # noqa: F403


@pytest.fixture(scope="session", params=["ppo", "bc", "marwil", "dqn", "sac", "td3", "cql", "iql"])
def algorithm(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def algorithm_config(algorithm: str, algorithm_config: AlgorithmConfig) -> AlgorithmConfig:
    more = {"ppo": {"use_kl_loss": True, "entropy_coeff": 0.01}, "dqn": {"n_step": 2}}
    return algorithm_config.training(**more.get(algorithm, {}))


@pytest.fixture
def learning_config(algorithm: str, learning_config: AlgorithmConfig) -> AlgorithmConfig:
    more = {
        "dqn": {"epsilon": 0.1, "target_network_update_freq": 100},
        "sac": {"initial_alpha": 0.1},
        "cql": {"initial_alpha": 0.1, "actor_lr": 0.01},
    }
    return learning_config.training(**more.get(algorithm, {}))
