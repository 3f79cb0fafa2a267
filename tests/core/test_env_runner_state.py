"""The state of an env runner: a resumed run goes on in the middle of its episodes, bit for bit."""

from typing import Any

import counting
import gymnasium as gym
import numpy as np
import pytest
from sampling import assert_chunk, balance, make_runner, swing

from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import EnvContractError, RestoreMismatchError


def assert_same(left: Any, right: Any) -> None:
    """Nested states, or lists of episodes, bit for bit; states are dicts of arrays and plain values only."""
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert isinstance(key, str)
            assert_same(left[key], right[key])
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    else:
        assert left is None or type(left) in (int, float, str)
        assert left == right


def assert_same_episodes(left: list[Any], right: list[Any]) -> None:
    assert [chunk.id_ for chunk in left] == [chunk.id_ for chunk in right]
    for one, other in zip(left, right, strict=True):
        assert one.is_done == other.is_done
        for name in ("observations", "actions", "rewards"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def write_into(state: Any) -> None:
    """Change every array of a nested state."""
    if isinstance(state, np.ndarray):
        state[...] = np.logical_not(state)
    for each in state.values() if isinstance(state, dict) else state if isinstance(state, list) else ():
        write_into(each)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("env", "act"), [(counting.ID, counting.policy), ("CartPole-v1", balance), ("Pendulum-v1", swing)]
)
def test_a_state_continues_in_the_middle_of_the_episodes_bit_for_bit(env, act, normalize):
    settings = {"env": env, "normalize_observations": normalize}
    whole = make_runner(act, seed=3, **settings)
    for num_steps in (55, 1, 6):
        whole.sample(num_steps)
    state = whole.get_state()
    resumed = make_runner(act, seed=3, **settings)
    resumed.set_state(state)
    assert_same(state, resumed.get_state())
    for num_steps in (5, 150):
        assert_same_episodes(whole.sample(num_steps), resumed.sample(num_steps))
        assert whole.get_metrics() == resumed.get_metrics()
    assert_same(whole.get_state(), resumed.get_state())


def test_a_state_survives_the_disk(tmp_path):
    runner = make_runner(swing, env="Pendulum-v1", normalize_observations=True)
    runner.sample(210)
    save_checkpoint(tmp_path / "runner", runner.get_state(), metadata={})
    resumed = make_runner(swing, env="Pendulum-v1", normalize_observations=True)
    resumed.set_state(load_checkpoint(tmp_path / "runner").state)
    assert_same_episodes(runner.sample(210), resumed.sample(210))
    assert_same(runner.get_state(), resumed.get_state())


class Sensor(gym.Env[Any, Any]):
    """Its sensor can be gone."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (4,)), gym.spaces.Discrete(2)
    is_gone = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.is_gone:
            raise KeyError("no such sensor")
        return np.zeros(4, np.float32), 0.0, False, False, {}


def test_an_error_of_the_environments_code_while_it_is_replayed_is_not_one_of_the_state(monkeypatch):
    runner = make_runner(balance, env=Sensor)
    runner.sample(5)
    state = runner.get_state()
    monkeypatch.setattr(Sensor, "is_gone", True)
    said = "environment 0 of .*Sensor.* cannot replay .* from its seed and actions: .* KeyError: 'no such sensor'"
    with pytest.raises(EnvContractError, match=said):
        make_runner(balance, env=Sensor).set_state(state)


def test_an_older_state_takes_a_runner_back():
    runner = make_runner(normalize_observations=True)
    runner.sample(50)
    state = runner.get_state()
    first = runner.sample(50)
    runner.set_state(state)
    assert_same(state, runner.get_state())
    assert_same_episodes(runner.sample(50), first)


def test_a_state_is_a_copy():
    runner = make_runner(normalize_observations=True)
    runner.sample()
    state = runner.get_state()
    before = repr(state)
    runner.sample()
    assert repr(state) == before


def test_whoever_writes_into_a_state_changes_no_runner():
    runner, other = (make_runner(swing, env="Pendulum-v1", normalize_observations=True) for _ in range(2))
    for each in (runner, other):
        each.sample(3)
    write_into(runner.get_state())
    assert_same_episodes(runner.sample(4), other.sample(4))
    state = other.get_state()
    runner.set_state(state)
    write_into(state)
    assert_same_episodes(runner.sample(4), other.sample(4))


def test_a_state_from_before_the_first_sample_begins_as_a_new_runner_does():
    state = make_runner(seed=5).get_state()
    resumed = make_runner(seed=5)
    resumed.set_state(state)
    assert_same_episodes(resumed.sample(), make_runner(seed=5).sample())


@pytest.mark.parametrize(
    "changed", [{"num_envs_per_env_runner": 5}, {"vectorization_mode": "vector_entry_point"}]
)
def test_where_episodes_cannot_be_continued_new_ones_begin_that_were_not_seen_before(changed):
    runner = make_runner(seed=2)
    seen = {int(chunk.observations[0, 0]) for chunk in runner.sample(20)}
    resumed = make_runner(seed=2, **changed)
    resumed.set_state(runner.get_state())
    chunks = resumed.sample(20)
    assert {int(chunk.observations[0, 0]) for chunk in chunks}.isdisjoint(seen)
    assert min(int(chunk.id_) for chunk in chunks) == runner.num_episodes_begun + 1
    assert resumed.total_steps == runner.total_steps + sum(map(len, chunks))
    for chunk in chunks:
        assert_chunk(chunk)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("reason", ["vector_entry_point", "too long"])
def test_a_save_is_a_cut_where_running_episodes_cannot_be_saved(monkeypatch, reason, normalize):
    """Who goes on after the save samples what a resumed runner does, and nothing that was seen before."""
    settings = {"seed": 3, "normalize_observations": normalize, "num_envs_per_env_runner": 2}
    if reason == "too long":
        monkeypatch.setattr("plugrad.sampling.replayable_env.MAX_ACTIONS", 4)
    else:
        settings["vectorization_mode"] = reason
    whole, resumed = make_runner(**settings), make_runner(**settings)
    seen = {chunk.id_ for chunk in whole.sample(5)}
    state = whole.get_state()
    assert state["running"] is None
    whole.truncate()
    resumed.set_state(state)
    for num_steps in (3, 20):
        chunks = whole.sample(num_steps)
        assert_same_episodes(chunks, resumed.sample(num_steps))
        assert seen.isdisjoint(chunk.id_ for chunk in chunks)
        assert whole.get_metrics() == resumed.get_metrics()
    assert_same(whole.get_state(), resumed.get_state())


def test_a_save_cuts_nothing_that_can_be_lived_through_again():
    whole, saved = make_runner(seed=3), make_runner(seed=3)
    for runner in (whole, saved):
        runner.sample(5)
    saved.get_state()
    saved.truncate()
    assert_same_episodes(whole.sample(20), saved.sample(20))


def test_an_environment_that_does_not_repeat_itself_begins_anew_and_says_so():
    runner = make_runner(env=counting.UnrepeatableEnv, num_envs_per_env_runner=1)
    runner.sample(4)
    resumed = make_runner(env=counting.UnrepeatableEnv, num_envs_per_env_runner=1)
    with pytest.warns(UserWarning, match="environment 0 did not repeat"):
        resumed.set_state(runner.get_state())
    episode = resumed.sample(13)[0]
    assert_chunk(episode)
    assert len(episode) == 13
    assert resumed.get_metrics()["episode_len_mean"] == 13


@pytest.mark.parametrize("saved", [True, False])
def test_a_state_with_statistics_fits_only_a_runner_that_normalises(saved):
    runner = make_runner(normalize_observations=saved)
    runner.sample()
    other = make_runner(normalize_observations=not saved)
    before = repr(other.get_state())
    with pytest.raises(RestoreMismatchError, match=f"set normalize_observations={saved}"):
        other.set_state(runner.get_state())
    assert repr(other.get_state()) == before
