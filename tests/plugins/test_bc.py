"""Behaviour cloning and MARWIL: the losses by hand, equal on every backend, and an expert imitated by its recording."""

import json
from functools import cache
from math import log

import gymnasium as gym
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from learning import OBSERVATIONS, TWO_ACTIONS, digest, largest_difference, quick_mode

from plugrad import DEFAULT_MODULE_ID, Columns, SingleAgentEpisode
from plugrad.algorithm import Algorithm
from plugrad.cli import main
from plugrad.errors import BatchError, ConfigError
from plugrad.offline import save_episodes
from plugrad.returns import returns_to_go
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.evaluation import sample_episodes
from plugrad.sampling.vectorization import get_env_spaces
from plugrad.training.offline import ShuffledRows
from plugrad_bc import BCConfig
from plugrad_offline.marwil import ReturnsToGo
from plugrad_offline.marwil.config import MARWILConfig

P = DEFAULT_MODULE_ID


def config(backend: str, *, compile: str = "none", **training) -> BCConfig:
    return (
        BCConfig()
        .framework(backend, compile=compile)
        .environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .training(minibatch_size=None, **training)
        .debugging(seed=1)
    )


def demonstrations(rows: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    """Right where the first number is positive."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(rows, 3)).astype(np.float32)
    return {Columns.OBS: obs, Columns.ACTIONS: (obs[:, 0] > 0).astype(np.int64)}


def with_returns(rows: int = 16) -> dict[str, np.ndarray]:
    returns = np.random.default_rng(9).normal(scale=3.0, size=rows).astype(np.float32)
    return {**demonstrations(rows), Columns.RETURNS_TO_GO: returns}


# --- the losses ---


def test_a_batch_of_observations_and_actions_is_enough_and_the_loss_begins_at_ln_2(backend):
    learner = config(backend, lr=0.01).training(minibatch_size=64).build_learner()
    losses = [learner.update(demonstrations(512))[P]["total_loss"] for _ in range(20)]
    assert losses[0] == pytest.approx(log(2.0), abs=0.05)
    assert losses[-1] < 0.3
    assert not any(name.startswith("vf") for name in learner.get_weights()[P])


def test_marwils_loss_is_that_of_the_paper():
    learner = config("numpy", beta=2.0, vf_coeff=0.5, moving_average_sqd_adv_norm_start=9.0).build_learner()
    batch = with_returns()
    outputs = learner.module[P].forward_train({Columns.OBS: batch[Columns.OBS]})
    logits, values = outputs[Columns.ACTION_DIST_INPUTS], outputs[Columns.VF_PREDS]
    logp = (logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[np.arange(16), batch[Columns.ACTIONS]]
    advantages = batch[Columns.RETURNS_TO_GO] - values
    policy_loss = -np.mean(np.exp(2.0 * advantages / 3.0) * logp)
    vf_loss = 0.5 * np.mean(advantages**2)
    results = learner.update(batch)[P]
    assert results["policy_loss"] == pytest.approx(policy_loss, rel=1e-5)
    assert results["vf_loss"] == pytest.approx(vf_loss, rel=1e-5)
    assert results["total_loss"] == pytest.approx(policy_loss + 0.5 * vf_loss, rel=1e-5)


def test_the_average_of_the_squared_advantages_moves_once_per_update_and_is_part_of_the_state():
    rate = {"moving_average_sqd_adv_norm_start": 9.0, "moving_average_sqd_adv_norm_update_rate": 0.25}
    learner = config("numpy", beta=1.0, **rate).build_learner()
    results = learner.update(with_returns(), num_epochs=3)[P]
    expected = 9.0 + 0.25 * (results["mean_squared_advantage"] - 9.0)
    assert results["moving_avg_sqd_adv_norm"] == pytest.approx(expected, rel=1e-6)
    state = learner.get_state("coefficients")["coefficients"][P]
    assert state["moving_average_sqd_adv_norm_start"] == pytest.approx(expected, rel=1e-6)


def test_the_average_stays_where_every_minibatch_of_an_update_was_skipped():
    settings = {"moving_average_sqd_adv_norm_update_rate": 0.5, "nonfinite": "skip"}
    learner = config("numpy", beta=1.0, **settings).build_learner()
    before = learner.get_state("coefficients")
    outlier = with_returns()
    outlier[Columns.RETURNS_TO_GO][0] = 1e30  # its weight is infinite
    assert not np.isfinite(learner.update(outlier)[P]["total_loss"])
    np.testing.assert_equal(learner.get_state("coefficients"), before)
    assert np.isfinite(learner.update(with_returns())[P]["total_loss"])


@cache
def updated(backend: str, beta: float, compile: str = "none"):
    learner = config(backend, compile=compile, beta=beta, lr=0.01, grad_clip=1.0).build_learner()
    return learner, learner.update(with_returns(), num_epochs=3)


@pytest.mark.parametrize("compile", ["none", "auto"])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_every_backend_computes_the_same_within_1e_5(backend, beta, compile):
    (one, results), (other, expected) = updated(backend, beta, compile), updated("numpy", beta)
    assert largest_difference(one.get_weights(), other.get_weights()) < 1e-5
    assert results[P] == pytest.approx(expected[P], rel=1e-4, abs=1e-5)
    assert results[P]["num_module_steps_trained"] == 16


def test_returns_of_the_wrong_shape_are_refused():
    learner = config("numpy", beta=1.0).build_learner()
    batch = with_returns()
    with pytest.raises(
        BatchError,
        match=r"'returns_to_go': expected one number per row, shape \[16\], found \[16, 1\] in a minibatch",
    ):
        learner.update({**batch, Columns.RETURNS_TO_GO: batch[Columns.RETURNS_TO_GO][:, None]})


# --- data ---


@given(rewards=st.lists(st.floats(-1, 1, width=32), max_size=20), gamma=st.floats(0, 1))
def test_returns_to_go_are_the_discounted_sums(rewards, gamma):
    expected = [
        sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))
    ]
    np.testing.assert_allclose(returns_to_go(np.array(rewards), gamma), expected, rtol=1e-5, atol=1e-6)


def test_returns_stay_within_their_episodes_and_modules():
    episodes = [
        SingleAgentEpisode(
            observations=np.zeros((3, 1)), actions=np.zeros(2), rewards=[1.0, 2.0], module_id=module_id
        )
        for module_id in ("a", "b", "a")
    ]
    found = ReturnsToGo(0.5)(learner=None, batch={"a": {"obs": np.zeros(4)}}, episodes=episodes)
    assert found["a"][Columns.RETURNS_TO_GO].tolist() == [2.0, 2.0, 2.0, 2.0]
    assert list(found) == ["a"]


@given(
    rows=st.integers(1, 12),
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    seed=st.integers(0, 9),
)
def test_rows_come_in_passes_that_only_seed_name_and_place_decide(rows, counts, seed):
    walk = ShuffledRows(rows, seed, "p")
    found = np.concatenate([walk.take(count) for count in counts])
    for begin in range(0, len(found) - rows + 1, rows):
        assert sorted(found[begin : begin + rows]) == list(range(rows))
    resumed = ShuffledRows(rows, seed, "p")
    resumed.taken = sum(counts[:-1])
    np.testing.assert_array_equal(resumed.take(counts[-1]), found[sum(counts[:-1]) :])


# --- an expert's recording ---


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> str:
    """20 episodes of a linear policy that keeps CartPole up for all of its 500 steps."""

    def act(observations):
        return {Columns.ACTIONS: (observations @ np.array([0.05, 0.1, 1.0, 0.3]) > 0).astype(np.int64)}

    runner = EnvRunner(config=BCConfig().environment("CartPole-v1"), act=act)
    episodes = sample_episodes(runner, num_episodes=20, seed=0)
    assert sum(episode.get_return() for episode in episodes) == 20 * 500
    _, observations, actions = get_env_spaces(BCConfig().environment("CartPole-v1"))
    spaces = {"observation_space": observations, "action_space": actions}
    return save_episodes(tmp_path_factory.mktemp("recording"), episodes, **spaces)


def test_an_expert_is_imitated_to_a_mean_return_of_475(backend, recording):
    algorithm = (
        BCConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .offline_data(input_=recording)
        .debugging(seed=0)
    ).build_algo()
    for _ in range(15):
        results = algorithm.train()
    assert results["num_env_steps_sampled_lifetime"] == 15 * 2048
    assert algorithm.evaluate(num_episodes=20, seed=7)["episode_return_mean"] >= 475


def test_marwil_learns_from_the_same_recording(backend, recording):
    algorithm = (
        BCConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .training(input_=recording, beta=1.0, vf_coeff=0.01)
        .debugging(seed=0)
    ).build_algo()
    losses = [algorithm.train()[f"learners/{P}/vf_loss"] for _ in range(10)]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_resumed_run_equals_one_that_was_never_stopped(backend, recording, tmp_path, beta):
    settings = config(backend).training(
        input_=recording, train_batch_size=3000, minibatch_size=500, beta=beta
    )
    whole = settings.environment(observation_space=None, action_space=None).build_algo()
    assert whole.config.observation_space.shape == (4,)  # without an environment, the recording's spaces
    for _ in range(3):
        whole.train()
    whole.save_to_path(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path)
    for algorithm in (whole, resumed):
        for _ in range(2):
            results = algorithm.train()
        assert results["num_env_steps_sampled_lifetime"] == 15000
    assert digest(resumed._learner.get_state()) == digest(whole._learner.get_state())
    with pytest.raises(ConfigError, match="BCConfig is offline: it has no env runner"):
        whole.sample()


def test_what_cannot_be_learned_from_is_refused_before_anything_is_built(recording):
    with pytest.raises(ConfigError, match="input_ names no recorded episodes"):
        BCConfig().environment("CartPole-v1").build_algo()
    with pytest.raises(ConfigError, match="recorded observations are learned from as they are"):
        BCConfig().env_runners(normalize_observations=True).offline_data(input_=recording).build_algo()
    with pytest.raises(
        ConfigError, match=r"observation_spaces differ: the whole: float \[3\] asked, float \[4\]"
    ):
        config("numpy").offline_data(input_=recording).build_algo()


# --- what must be remembered ---


def recollections(number: int) -> list[SingleAgentEpisode]:
    """The first observation is 1 or -1, all others are alike; the last of some actions says which it was."""
    rng, episodes = np.random.default_rng(0), []
    for n in range(number):
        cue, steps = n % 2, int(rng.integers(3, 6))
        observations = np.zeros((steps + 1, 2), np.float32)
        observations[0, 0], observations[steps - 1, 1] = 2 * cue - 1, 1.0
        actions = np.append(rng.integers(2, size=steps - 1), cue)
        rewards = np.eye(steps)[-1].astype(np.float32)
        episodes.append(
            SingleAgentEpisode(observations=observations, actions=actions, rewards=rewards, terminated=True)
        )
    return episodes


@pytest.mark.parametrize(("settings", "memory"), [(BCConfig, "gru"), (MARWILConfig, "lstm")])
def test_recorded_episodes_teach_a_recurrent_policy_what_to_remember(backend, settings, memory, tmp_path):
    episodes = recollections(64)
    spaces = {"observation_space": gym.spaces.Box(-1.0, 1.0, (2,)), "action_space": TWO_ACTIONS}
    save_episodes(tmp_path / "data", episodes, **spaces)
    model = {"fcnet_hiddens": [8], f"use_{memory}": True, f"{memory}_cell_size": 8, "max_seq_len": 5}
    training = {"train_batch_size": 250, "minibatch_size": 50, "num_epochs": 2, "lr": 0.02}
    config = (
        settings()
        .framework(backend, compile=quick_mode(backend))
        .environment(**spaces)
        .rl_module(model_config=model)
        .debugging(seed=0)
    )
    algorithm = config.training(**training).offline_data(input_=str(tmp_path / "data")).build_algo()
    for _ in range(10):
        steps = algorithm.train()["num_env_steps_sampled_lifetime"]
    assert steps == pytest.approx(2500, rel=0.02)
    policy = algorithm.get_policy()
    for episode in episodes[:8]:
        state = None
        for observation in episode.observations[:-1]:
            action, state = policy.predict(observation, state)
        assert action == episode.actions[-1]

    algorithm.save_to_path(tmp_path / "saved")
    resumed = Algorithm.from_checkpoint(tmp_path / "saved")
    for each in (algorithm, resumed):
        each.train()
    assert digest(resumed._learner.get_state()) == digest(algorithm._learner.get_state())


# --- the command line ---


def plugrad(*arguments) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="plugrad")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_record_and_train_from_the_command_line(backend, tmp_path):
    run, data, clone = tmp_path / "run", tmp_path / "data", tmp_path / "clone"
    plugrad("train", "--backend", backend, "--out", run, "--stop-timesteps", 2048, "-q")
    assert plugrad("record", run, "--episodes", 3, "-o", data).splitlines()[-1] == f"episodes: {data}"
    plugrad("record", run, "--episodes", 2, "--explore", "-o", data)
    lines = plugrad(
        "train", "bc", "CartPole-v1", "--backend", backend, "--training.input_", data, "--out", clone,
        "--stop-timesteps", 20480, "--stop-reward", 501,
    ).splitlines()  # fmt: skip
    assert lines[0] == f"bc on CartPole-v1 with {backend}, seed 0"
    summary = json.loads((clone / "summary.json").read_text())
    assert summary["timesteps"] == 20480
    assert summary["best_return_mean"] > 8  # of the evaluation in the 10th iteration
    no_env = plugrad(
        "train",
        "bc",
        "--backend",
        backend,
        "--training.input_",
        data,
        "--stop-timesteps",
        1,
        "--out",
        tmp_path / "o",
    )
    assert no_env.splitlines()[0] == f"bc on recorded episodes with {backend}, seed 0"
