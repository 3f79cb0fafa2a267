"""Many agents with remote learners and env runners in Ray: modules come and go everywhere."""

from pathlib import Path

from learning import digest
from two_agents import BOTH, SPACES, AlikeLamps

from plugrad.algorithm import Algorithm
from plugrad_ppo import PPOConfig


def test_modules_come_and_go_in_remote_learners_and_env_runners(cluster: None, tmp_path: Path) -> None:
    config = (
        PPOConfig()
        .framework("numpy")
        .environment(AlikeLamps)
        .multi_agent(policies=list(SPACES), agent_to_module=BOTH, policies_to_train=list(SPACES))
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .learners(num_learners=1, num_cpus_per_learner=0.1)
        .env_runners(num_env_runners=1, num_envs_per_env_runner=2, normalize_observations=True)
        .training(train_batch_size=24, minibatch_size=None, num_epochs=1)
        .debugging(seed=3)
    )
    algorithm = config.build_algo()
    algorithm.train()
    algorithm.add_module("past", from_module="mover", agent_to_module={"guesser": "past", "mover": "mover"})
    weights = algorithm.learner_group.get_weights()
    assert digest(weights["past"]) == digest(weights["mover"])
    algorithm.train()  # the agents of running episodes keep their modules
    assert algorithm.train()["env_runners/num_module_steps_sampled/past"] == 2 * 2 * 4
    after = algorithm.learner_group.get_weights()
    assert digest(after["past"]) == digest(weights["past"])
    assert digest(after["mover"]) != digest(weights["mover"])
    algorithm.save_to_path(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path, env=AlikeLamps)
    assert resumed.evaluate() == algorithm.evaluate()
    for each in (algorithm, resumed):
        each.remove_module("guesser")
        each.train()
        each.stop()
