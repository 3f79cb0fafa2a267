"""Environments with many agents in env runner processes: metrics, statistics and checkpoints of all modules."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from two_agents import BOTH, SPACES, AlikeLamps, Lamps

from plugrad_ppo import PPOConfig


def lamps(env: Any = Lamps, **multi_agent: Any) -> Any:
    return (
        PPOConfig()
        .framework("numpy")  # the way of samples and weights knows no backend
        .environment(env)
        .multi_agent(**(multi_agent or {"policies": list(SPACES), "agent_to_module": BOTH}))
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(
            num_env_runners=2,
            num_envs_per_env_runner=1,
            rollout_fragment_length=24,
            normalize_observations=True,
            env_runner_backend="process",
        )
        .training(train_batch_size=48, minibatch_size=None, num_epochs=1)
        .debugging(seed=0)
        .build_algo()
    )


def test_modules_of_different_spaces_act_in_env_runner_processes(tmp_path: Path) -> None:
    algorithm, resumed = lamps(), lamps()
    results = algorithm.train()
    assert results["env_runners/num_env_steps_sampled"] == 48
    assert results["env_runners/num_module_steps_sampled/mover"] == 48
    parts = [results[f"env_runners/agent_episode_returns_mean/{agent}"] for agent in SPACES]
    assert results["env_runners/episode_return_mean"] == pytest.approx(sum(parts))
    assert {each.count for each in algorithm.env_runner.normalizers.values()} != {0}
    episodes = algorithm.sample()
    ids = [each.id_ for episode in episodes for each in episode.agent_episodes.values()]
    assert {each.split("-")[0] for each in ids} == {"0", "1"}
    for episode in episodes:  # recorded by the weights of now
        for agent, part in episode.agent_episodes.items():
            learner = algorithm.learner_group.acting_learner.learner
            found = learner.compute_actions(part.observations[:-1], module_id=episode.module_for(agent))
            expected = part.extra_model_outputs["action_dist_inputs"]
            np.testing.assert_allclose(found["action_dist_inputs"], expected, atol=1e-5)
    algorithm.save_to_path(tmp_path)
    resumed.restore_from_path(tmp_path)
    one, other = algorithm.train(), resumed.train()
    for name, value in one.items():
        if "time/" not in name:
            assert other[name] == value, name
    os.kill(algorithm.env_runner._actors[0].location[1], signal.SIGKILL)
    assert algorithm.train()["env_runners/num_env_steps_sampled"] == 48
    algorithm.request_samples()
    algorithm.save_to_path(tmp_path)
    resumed.restore_from_path(tmp_path)
    for a, b in zip(algorithm.collect_all_samples(), resumed.collect_all_samples(), strict=True):
        assert [each.id_ for each in a.episodes] == [each.id_ for each in b.episodes]
        for x, y in zip(a.episodes, b.episodes, strict=True):
            for agent, part in x.agent_episodes.items():
                np.testing.assert_array_equal(part.actions, y.agent_episodes[agent].actions)
    algorithm.stop()
    resumed.stop()


def opponents_in_turn(agent_id: str, episode: Any) -> str:
    """The guesser is one of all that are no mover, drawn by the episode's seed."""
    others = [module_id for module_id in episode.module_ids if module_id != "mover"]
    return "mover" if agent_id == "mover" else str(others[episode.seed % len(others)])


def test_env_runner_processes_follow_modules_that_come_and_go() -> None:
    algorithm = lamps(AlikeLamps, policies=["guesser", "mover"], agent_to_module=opponents_in_turn)
    algorithm.train()
    algorithm.request_samples()  # of the modules of before
    algorithm.add_module("past-1", from_module="mover")
    counted = algorithm.env_runner.normalizers["past-1"].count
    assert counted == algorithm.env_runner.normalizers["mover"].count > 0
    assert len(algorithm.collect_all_samples()) == 4
    for _ in range(2):
        results = algorithm.train()
    assert results["env_runners/num_module_steps_sampled/past-1"] > 0
    assert algorithm.env_runner.normalizers["past-1"].count > counted
    algorithm.remove_module("guesser")
    for _ in range(2):  # the episodes that were running end
        results = algorithm.train()
    assert "env_runners/num_module_steps_sampled/guesser" not in results
    assert results["env_runners/num_env_steps_sampled"] == 48
    algorithm.stop()
