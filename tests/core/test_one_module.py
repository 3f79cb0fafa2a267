"""An Algorithm whose only module has another id than the default one trains, is judged and recorded like any other."""

import numpy as np
import pytest

from plugrad import MultiRLModuleSpec, RLModuleSpec
from plugrad.algorithm import Algorithm
from plugrad.errors import ConfigError
from plugrad.offline import save_episodes
from plugrad_bc import BCConfig
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig


def small(config):
    return (
        config.environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(num_envs_per_env_runner=2, rollout_fragment_length=8)
        .training(train_batch_size=16, minibatch_size=16)
        .debugging(seed=0)
    )


def by_policies(config):
    return config.multi_agent(policies={"p0"})


def by_spec(config):
    specs = {"p0": RLModuleSpec(model_config={"fcnet_hiddens": [2]})}
    return config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))


@pytest.mark.parametrize("named", [by_policies, by_spec])
def test_it_trains_evaluates_records_and_resumes_as_under_the_default_id(tmp_path, named):
    config = small(PPOConfig())
    algorithm = named(config.evaluation(evaluation_interval=1, evaluation_num_episodes=2)).build_algo()
    results = algorithm.train()
    assert np.isfinite(results["learners"]["p0/total_loss"])
    assert results["evaluation/num_episodes"] == 2
    recorded = algorithm.record(2, explore=True)
    assert {episode.module_id for episode in recorded.episodes} == {"p0"}
    assert {episode.module_id for episode in algorithm.sample()} == {"p0"}
    assert algorithm.get_policy().predict(np.zeros(4))[0] in (0, 1)
    algorithm.save_to_path(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path)
    assert resumed.train()["learners"]["p0/total_loss"] == algorithm.train()["learners"]["p0/total_loss"]


def test_a_module_with_a_state_acts_under_another_id():
    settings = {"fcnet_hiddens": [2], "use_lstm": True, "lstm_cell_size": 2}
    algorithm = by_policies(small(PPOConfig()).rl_module(model_config=settings)).build_algo()
    assert any(column.startswith("state_in/") for column in algorithm.sample()[0].extra_model_outputs)
    assert algorithm.evaluate(1)["num_episodes"] == 1


def test_dqn_trains_under_another_id():
    config = small(DQNConfig()).training(num_steps_sampled_before_learning_starts=1)
    results = by_policies(config).build_algo().train()
    assert np.isfinite(results["learners"]["p0/total_loss"])


@pytest.mark.parametrize("recorded_by", ["p0", "default_policy"])
@pytest.mark.parametrize("trained", ["p0", "default_policy"])
def test_recorded_episodes_train_the_only_module_whoever_recorded_them(tmp_path, recorded_by, trained):
    def under(config, module_id):
        return config if module_id == "default_policy" else config.multi_agent(policies={module_id})

    data = under(small(PPOConfig()), recorded_by).build_algo().record(2)
    save_episodes(
        tmp_path, data.episodes, observation_space=data.observation_space, action_space=data.action_space
    )
    config = small(BCConfig()).training(input_=str(tmp_path))
    algorithm = under(config, trained).build_algo()
    assert np.isfinite(algorithm.train()["learners"][f"{trained}/total_loss"])
    assert algorithm.evaluate(1)["num_episodes"] == 1


def test_several_modules_and_one_agent_need_the_default_id():
    config = small(PPOConfig()).multi_agent(policies={"p0", "p1"})
    with pytest.raises(ConfigError, match="p0, p1: which acts in it"):
        config.build_algo()
    default = small(PPOConfig()).multi_agent(policies={"default_policy", "p1"}).build_algo()
    assert {episode.module_id for episode in default.sample()} == {"default_policy"}
