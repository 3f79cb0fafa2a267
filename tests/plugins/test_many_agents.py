"""Each algorithm that samples trains modules of different spaces side by side."""

from typing import Any

import numpy as np
import pytest
from learning import quick_mode
from two_agents import BOTH, SPACES, Lamps

from plugrad_dqn import DQNConfig
from plugrad_impala import APPOConfig, IMPALAConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

pytestmark = pytest.mark.cross_product("algorithm")

REPLAY: dict[str, Any] = {
    "train_batch_size": 16,
    "minibatch_size": 16,
    "num_steps_sampled_before_learning_starts": 16,
}
ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo": (PPOConfig, {"train_batch_size": 64, "num_epochs": 2, "minibatch_size": 16}),
    "dqn": (DQNConfig, REPLAY),
    "sac": (SACConfig, REPLAY),
    "impala": (IMPALAConfig, {"train_batch_size": 64}),
    "appo": (APPOConfig, {"train_batch_size": 64}),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_modules_of_different_spaces_are_trained_side_by_side(backend: str, algorithm: str) -> None:
    config_class, settings = ALGORITHMS[algorithm]
    config = (
        config_class().framework(backend, compile=quick_mode(backend)).environment(Lamps).debugging(seed=0)
    )
    config = config.env_runners(num_envs_per_env_runner=4, rollout_fragment_length=16)
    config = config.rl_module(model_config={"fcnet_hiddens": [8]})
    trained = (
        config.multi_agent(policies=list(SPACES), agent_to_module=BOTH).training(**settings).build_algo()
    )
    before = trained.learner_group.get_weights()
    for _ in range(2):
        results = trained.train()
    after = trained.learner_group.get_weights()
    trained.stop()
    for module_id in SPACES:
        assert results[f"learners/{module_id}/num_module_steps_trained"] > 0
        assert np.isfinite(results[f"learners/{module_id}/total_loss"])
        assert any(np.any(after[module_id][name] != each) for name, each in before[module_id].items())
    assert results["num_env_steps_sampled_lifetime"] >= 128
