"""Recording while training: whole episodes, all of them once, whatever is stopped, killed or resumed."""

import logging
import re

import numpy as np
import pytest
from click.testing import CliRunner

from plugrad import SingleAgentEpisode
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import list_saves, load_checkpoint
from plugrad.cli import main
from plugrad.errors import ConfigError
from plugrad.offline import EpisodeRecorder, load_episodes, save_episodes
from plugrad.sampling.vectorization import get_env_spaces
from plugrad_ppo import PPOConfig


def config(output=None, **offline_data):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(num_envs_per_env_runner=3, rollout_fragment_length=20)
        .training(train_batch_size=60, minibatch_size=None, num_epochs=1)
        .offline_data(output=None if output is None else str(output), **offline_data)
        .debugging(seed=4)
    )


def steps_of(episodes):
    """What must be equal, whatever the order: every episode's columns as bytes."""
    return sorted(
        (
            e.observations.tobytes(),
            e.actions.tobytes(),
            e.rewards.astype(np.float32).tobytes(),
            e.terminated,
            e.truncated,
        )
        for e in episodes
    )


def trained(output, iterations, **offline_data):
    algorithm = config(output, **offline_data).build_algo()
    for _ in range(iterations):
        algorithm.train()
    return algorithm


def test_every_episode_that_ends_is_written_whole_and_once(tmp_path):
    algorithm = config(tmp_path / "data", output_max_rows_per_file=50).build_algo()
    ended, lengths = 0, []
    for _ in range(8):
        results = algorithm.train()
        ended += results["env_runners/num_episodes"]
        lengths += [length for _, length in algorithm.env_runner.finished_episodes]
    algorithm.stop()
    data = load_episodes(str(tmp_path / "data"))
    assert len(data.episodes) == ended > 5
    assert [len(each) for each in data.episodes] == lengths
    assert all(each.is_done and not each.extra_model_outputs for each in data.episodes)
    assert (data.observation_space, data.action_space) == get_env_spaces(
        PPOConfig().environment("CartPole-v1")
    )[1:]
    parts = [load_checkpoint(each).metadata["num_steps"] for each in list_saves(tmp_path / "data")]
    assert len(parts) > 2
    assert all(steps < 50 + 3 * 500 for steps in parts)


def test_recording_changes_nothing_of_the_training(tmp_path):
    one, other = trained(tmp_path, 3), trained(None, 3)
    for each in (one, other):
        each.train()
    np.testing.assert_equal(one.learner_group.get_weights(), other.learner_group.get_weights())


@pytest.mark.parametrize("learner", [None, "async_training:AsynchronousLearner"])
def test_episodes_of_several_env_runners_are_whole(tmp_path, learner):
    """Training that does not wait takes the samples of one env runner while episodes of others run on."""
    runners = {"num_env_runners": 2, "num_envs_per_env_runner": 1, "rollout_fragment_length": 10}
    several = config(tmp_path).env_runners(**runners).learners(learner_class=learner)
    algorithm = several.training(train_batch_size=20).build_algo()
    ended = sum(algorithm.train()["env_runners/num_episodes"] for _ in range(12))
    algorithm.stop()
    episodes = load_episodes(str(tmp_path)).episodes
    assert len(episodes) == ended > 4
    beginnings = np.array([each.observations[0] for each in episodes])
    assert abs(beginnings).max() <= 0.05  # where an episode of CartPole begins


@pytest.mark.parametrize("is_resumed", [False, True])
def test_episodes_that_began_before_the_recording_are_not_written(tmp_path, is_resumed):
    algorithm = config().build_algo()
    algorithm.train()
    begun = algorithm.env_runner.num_episodes_begun
    if is_resumed:
        algorithm.save_to_path(tmp_path / "checkpoint")
        algorithm = config(tmp_path / "data").build_algo()
        algorithm.restore_from_path(tmp_path / "checkpoint")
    else:
        algorithm.record_training(tmp_path / "data")
    for _ in range(4):
        algorithm.train()
    algorithm.stop()
    episodes = load_episodes(str(tmp_path / "data")).episodes
    beginnings = np.array([each.observations[0] for each in episodes])
    assert abs(beginnings).max() <= 0.05  # where an episode of CartPole begins
    assert len(episodes) == algorithm.env_runner.num_episodes_begun - begun - 3


def test_a_run_that_was_killed_and_goes_on_writes_each_episode_once(tmp_path):
    whole = trained(tmp_path / "whole", 9)
    whole.stop()
    killed = trained(tmp_path / "data", 4, output_max_rows_per_file=30)
    killed.save_to_path(tmp_path / "checkpoint")
    for _ in range(3):
        killed.train()  # parts of these are on disk; the rest is lost with the process
    resumed = Algorithm.from_checkpoint(tmp_path / "checkpoint")
    for _ in range(5):
        resumed.train()
    resumed.stop()
    found, expected = (load_episodes(str(tmp_path / name)).episodes for name in ("data", "whole"))
    assert steps_of(found) == steps_of(expected)


def test_a_run_goes_on_from_a_checkpoint_before_the_first_episode_ended(tmp_path):
    algorithm = config(tmp_path / "data").build_algo()
    algorithm.save_to_path(tmp_path / "checkpoint")
    resumed = Algorithm.from_checkpoint(tmp_path / "checkpoint")
    for _ in range(3):
        resumed.train()
    resumed.stop()
    assert len(load_episodes(str(tmp_path / "data")).episodes) > 1


def test_a_limit_on_the_steps_holds_also_after_a_restart(tmp_path, caplog):
    limit = {"output_max_rows": 100, "output_max_rows_per_file": 40}
    first = trained(tmp_path / "data", 6, **limit)
    first.save_to_path(tmp_path / "checkpoint")
    resumed = Algorithm.from_checkpoint(tmp_path / "checkpoint")
    for _ in range(6):
        resumed.train()
    resumed.stop()
    assert 60 < sum(map(len, load_episodes(str(tmp_path / "data")).episodes)) <= 100
    assert [
        r.message for r in caplog.records if r.levelno == logging.WARNING and "recorded" in r.message
    ] != []


def test_episodes_that_are_in_the_directory_stay(tmp_path):
    older = config().build_algo().record(2)
    save_episodes(
        tmp_path, older.episodes, observation_space=older.observation_space, action_space=older.action_space
    )
    trained(tmp_path, 4).stop()
    assert steps_of(load_episodes(str(tmp_path)).episodes[:2]) == steps_of(older.episodes)


def test_an_episode_that_is_cut_off_is_not_written(tmp_path):
    _, observation_space, action_space = get_env_spaces(PPOConfig().environment("CartPole-v1"))
    recorder = EpisodeRecorder(tmp_path, observation_space=observation_space, action_space=action_space)

    def chunk(id_, *, terminated=False):
        return SingleAgentEpisode(
            observations=np.zeros((3, 4), np.float32),
            actions=[0, 1],
            rewards=[1, 1],
            terminated=terminated,
            id_=id_,
        )

    recorder.add([chunk("1"), chunk("2")])
    recorder.add([chunk("2")])
    recorder.add([chunk("1", terminated=True), chunk("2", terminated=True)])
    recorder.flush()
    assert [len(each) for each in load_episodes(str(tmp_path)).episodes] == [2, 6]


def test_an_episode_of_which_a_sample_was_lost_is_not_written(tmp_path):
    _, observation_space, action_space = get_env_spaces(PPOConfig().environment("CartPole-v1"))
    recorder = EpisodeRecorder(tmp_path, observation_space=observation_space, action_space=action_space)

    def chunk(id_, t_started, *, terminated=False):
        steps = {"observations": np.zeros((3, 4), np.float32), "actions": [0, 1], "rewards": [1, 1]}
        return SingleAgentEpisode(**steps, id_=id_, t_started=t_started, terminated=terminated)

    recorder.add([chunk("1", 0), chunk("2", 0), chunk("3", 2)])
    recorder.add([chunk("1", 2), chunk("2", 4), chunk("3", 4)])
    recorder = recorder.resumed(recorder.get_state())
    recorder.add([chunk("1", 4, terminated=True), chunk("2", 6, terminated=True)])
    recorder.flush()
    assert [len(each) for each in load_episodes(str(tmp_path)).episodes] == [6]


def test_what_cannot_be_recorded_is_refused_before_anything_is_sampled(tmp_path):
    normalized = config(tmp_path / "data").env_runners(normalize_observations=True)
    with pytest.raises(
        ConfigError, match="with normalize_observations=True episodes have no observations of the env"
    ):
        normalized.build_algo()
    assert not (tmp_path / "data").exists()


def plugrad(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="plugrad")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_commands_record_a_training_from_its_beginning_or_from_a_run(tmp_path):
    run, data, more = tmp_path / "run", tmp_path / "data", tmp_path / "more"
    plugrad(
        "train", "ppo", "CartPole-v1", "--backend", "numpy", "--rl_module.model_config", "{fcnet_hiddens = [2]}",
        "--training.train_batch_size", 128, "--training.num_epochs", 1,
        "--offline_data.output", data, "--stop-timesteps", 512, "--out", run, "-q",
    )  # fmt: skip
    recorded = load_episodes(str(data)).episodes
    assert 200 < sum(map(len, recorded)) <= 512
    before = {each: each.stat().st_mtime_ns for each in run.rglob("*")}
    said = plugrad("record", run, "--timesteps", 512, "-o", more).splitlines()
    assert said[0] == "training on for 512 steps, which are recorded"
    assert re.match(r" +\d+ steps .*/s +return", said[1])
    assert said[-1] == f"episodes: {more}"
    assert {each: each.stat().st_mtime_ns for each in run.rglob("*")} == before
    assert 200 < sum(map(len, load_episodes(str(more)).episodes)) <= 512
    assert steps_of(load_episodes(str(data)).episodes) == steps_of(recorded)
