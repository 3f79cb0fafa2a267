"""Our algorithms go through the suite that every author's goes through."""

import pytest

from plugrad import AlgorithmConfig
from plugrad.testing.algorithm_suite import *  # noqa: F403

pytestmark = pytest.mark.cross_product("algorithm", part=6)  # tasks, backends and modes take turns


@pytest.fixture(
    scope="session",
    params=[
        "ppo",
        "bc",
        "marwil",
        "dqn",
        "pqn",
        "qrdqn",
        "rnd",
        "sac",
        "td3",
        "tqc",
        "cql",
        "iql",
        "impala",
        "appo",
    ],
)
def algorithm(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


MODES = {"jax": "auto"}
"""Eager JAX takes a minute for what a program does in seconds."""


@pytest.fixture
def algorithm_config(algorithm: str, backend: str, algorithm_config: AlgorithmConfig) -> AlgorithmConfig:
    more = {
        "ppo": {"use_kl_loss": True, "entropy_coeff": 0.01},
        "dqn": {"n_step": 2},
        "qrdqn": {"num_quantiles": 3, "double_q": True, "dueling": True},
        "rnd": {"rnd_hiddens": [3], "rnd_features": 2, "entropy_coeff": 0.01},
        "tqc": {"num_quantiles": 3, "top_quantiles_to_drop_per_critic": 1},
        # What a fixed batch brings down is the error of the values, while the target network does not move.
        "appo": {
            "use_kl_loss": True,
            "target_network_update_freq": 100.0,
            "vf_loss_coeff": 10.0,
            "gamma": 0.5,
        },
    }
    if algorithm in ("impala", "appo"):  # fragments that end within an episode: they are bootstrapped
        algorithm_config = algorithm_config.env_runners(rollout_fragment_length=5)
    config = algorithm_config.framework(backend, compile=MODES.get(backend, "none"))
    return config.training(**more.get(algorithm, {}))


@pytest.fixture
def learning_config(algorithm: str, learning_config: AlgorithmConfig) -> AlgorithmConfig:
    more = {
        "appo": {"target_network_update_freq": 0.5, "vf_loss_coeff": 0.5},
        "dqn": {"epsilon": 0.1, "target_network_update_freq": 100},
        "pqn": {"epsilon": 0.1},
        "qrdqn": {"epsilon": 0.1, "target_network_update_freq": 100, "num_quantiles": 5},
        "rnd": {"rnd_hiddens": [3], "rnd_features": 2, "rnd_coeff": 0.1},
        "sac": {"initial_alpha": 0.1},
        "tqc": {"initial_alpha": 0.1, "num_quantiles": 5, "top_quantiles_to_drop_per_critic": 1},
        "cql": {"initial_alpha": 0.1, "actor_lr": 0.01},
    }
    if algorithm in ("impala", "appo"):
        learning_config = learning_config.env_runners(rollout_fragment_length=None)
    return learning_config.training(**more.get(algorithm, {}))
