"""Another learning rate on resume keeps what training adapted, in each algorithm that adapts something."""

import gymnasium as gym
import numpy as np
import pytest
from learning import OBSERVATIONS

from plugrad import DEFAULT_MODULE_ID, SingleAgentEpisode
from plugrad_impala import APPOConfig
from plugrad_offline import MARWILConfig
from plugrad_ppo import PPOConfig

P = DEFAULT_MODULE_ID
KL = {"use_kl_loss": True, "kl_target": 1e-6}
AVERAGE = "moving_average_sqd_adv_norm_start"
KINDS = {
    "PPO": (PPOConfig, "kl_coeff", {**KL, "num_epochs": 2}),
    "APPO": (APPOConfig, "kl_coeff", KL),
    "MARWIL": (MARWILConfig, AVERAGE, {"moving_average_sqd_adv_norm_update_rate": 0.2}),
}


def built(config_class, **settings):
    config = (
        config_class().framework("numpy").debugging(seed=0).rl_module(model_config={"fcnet_hiddens": [2]})
    )
    config = config.environment(observation_space=OBSERVATIONS, action_space=gym.spaces.Discrete(2))
    return config.training(minibatch_size=None, **settings).build_learner()


def update(learner, seed):
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(9, 3)).astype(np.float32)
    outputs = learner.compute_actions(obs[:-1])
    episode = SingleAgentEpisode(
        observations=obs,
        actions=outputs.pop("actions"),
        rewards=rng.normal(size=8).astype(np.float32),
        terminated=True,
        extra_model_outputs=outputs,
    )
    learner.update(episodes=[episode])


@pytest.mark.parametrize("algorithm", KINDS)
def test_what_an_algorithm_adapted_is_kept_with_another_learning_rate(algorithm, tmp_path):
    config_class, name, settings = KINDS[algorithm]

    def value(learner):
        return learner.coefficients[P][name].numpy()

    learner = built(config_class, lr=0.01, **settings)
    first = value(learner)
    for seed in range(6):
        update(learner, seed)
    adapted = value(learner)
    assert adapted != first, "the comparison means something"
    path = learner.save_to_path(tmp_path / "c")
    for lr in (0.01, 0.003):
        resumed = built(config_class, lr=lr, **settings)
        resumed.restore_from_path(path, hyperparameters="config")
        assert value(resumed) == adapted
        assert resumed._get_optimizer_lr(resumed.get_optimizer(P)) == np.float32(lr)
    anew = built(config_class, **{**settings, name: float(first) + 1.0})
    anew.restore_from_path(path, hyperparameters="config")
    assert value(anew) == np.float32(first + 1.0), "a setting that is another one is the config's"
