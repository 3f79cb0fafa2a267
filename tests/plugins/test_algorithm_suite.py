"""Our algorithms go through the suite that every author's goes through."""

from pathlib import Path

import numpy as np
import pytest

from plugrad import AlgorithmConfig, SingleAgentEpisode
from plugrad.offline import save_episodes
from plugrad.testing.algorithm_suite import *  # noqa: F403
from plugrad.testing.tiny_task import STEPS, RightOrLeft, SayTheNumber

CONTINUOUS = ("sac", "td3")


@pytest.fixture(scope="session", params=["ppo", "bc", "marwil", "dqn", "sac", "td3"])
def algorithm(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def algorithm_config(
    algorithm: str, algorithm_config: AlgorithmConfig, demonstrations: Path
) -> AlgorithmConfig:
    more = {
        "ppo": {"use_kl_loss": True, "entropy_coeff": 0.01},
        "bc": {"input_": str(demonstrations)},
        "marwil": {"input_": str(demonstrations)},
        "dqn": {"num_steps_sampled_before_learning_starts": 16, "n_step": 2},
    }
    if algorithm in CONTINUOUS:
        more[algorithm] = more["dqn"]
        algorithm_config = algorithm_config.environment(SayTheNumber)
    return algorithm_config.training(**more[algorithm])


@pytest.fixture
def learning_config(algorithm: str, learning_config: AlgorithmConfig) -> AlgorithmConfig:
    if algorithm == "dqn":
        return learning_config.training(epsilon=0.1, gamma=0.5, target_network_update_freq=100)
    if algorithm in CONTINUOUS:
        learning_config = learning_config.env_runners(rollout_fragment_length=8)
        return learning_config.training(gamma=0.5, tau=0.05, train_batch_size=1024, num_epochs=1)
    return learning_config


@pytest.fixture(scope="session")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of somebody who is always right."""
    path, rng = tmp_path_factory.mktemp("demonstrations"), np.random.default_rng(0)
    episodes = [_demonstration(rng) for _ in range(40)]
    spaces = {
        "observation_space": RightOrLeft.observation_space,
        "action_space": RightOrLeft.action_space,
    }
    save_episodes(path, episodes, **spaces)
    return path


def _demonstration(rng: np.random.Generator) -> SingleAgentEpisode:
    observations = rng.uniform(-1.0, 1.0, (STEPS + 1, 3)).astype(np.float32)
    actions = (observations[:-1, 0] > 0).astype(np.int64)
    return SingleAgentEpisode(
        observations=observations, actions=actions, rewards=np.ones(STEPS, np.float32), terminated=True
    )
