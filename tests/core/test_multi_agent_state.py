"""The state of a multi-agent env runner: a resumed run goes on in the middle of its episodes, bit for bit."""

import needs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from many_agents import Event, Pair, Scripted, act_by_step, make_runner
from test_env_runner_state import assert_same, assert_same_episodes, write_into
from test_multi_agent_chunks import scripts

from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import RestoreMismatchError
from plugrad.sampling.multi_agent import replayable_agent_env

TURNS = [
    {"a": Event(True), "b": Event(True)},
    *[
        {"a": Event(t % 3 == 0, t), "b": Event(t % 2 == 0, -t), "c": Event(t % 5 == 4, 1)}
        for t in range(1, 17)
    ],
    {"a": Event(True, 7), "b": Event(True, 8), "c": Event(False, 9, "terminated")},
]


def recurrent(module_id, observations, state, **mask):
    """The action depends on what the agent saw until now."""
    after = {"h": state["h"] * 0.5 + observations.mean(axis=tuple(range(1, observations.ndim)))[:, None]}
    allowed = mask.get("action_mask", np.ones((len(observations), 5), bool))
    scores = np.where(allowed, np.cos(np.arange(allowed.shape[1]) + 100 * after["h"]), -9)
    return {"actions": scores.argmax(axis=1), "state_out": after}


def zero_state(module_id):
    return {"h": np.zeros(1)}


def assert_same_chunks(left, right):
    assert [(chunk.id_, len(chunk), chunk.is_done) for chunk in left] == [
        (chunk.id_, len(chunk), chunk.is_done) for chunk in right
    ]
    for one, other in zip(left, right, strict=True):
        assert list(one.agent_episodes) == list(other.agent_episodes)
        assert one.agent_to_module == other.agent_to_module
        assert_same_episodes([*one.agent_episodes.values()], [*other.agent_episodes.values()])
        for mine, theirs in zip(one.agent_episodes.values(), other.agent_episodes.values(), strict=True):
            assert_same(dict(mine.extra_model_outputs), dict(theirs.extra_model_outputs))


def resumable():
    """`(environment, settings)`: scripted turns, and PettingZoo's two interfaces."""
    scripted = {"env": Scripted, "act": act_by_step, "env_config": {"script": TURNS, "end": "truncated"}}
    memory = {"act": recurrent, "initial_state": zero_state}
    spread = {"env": "mpe2.simple_spread_v3:parallel_env", **memory}
    tag = {"env": "mpe2.simple_tag_v3:env", "agent_to_module": lambda agent: agent.split("_")[0], **memory}
    return {
        "scripted": scripted,
        "parallel": spread,
        "aec": {"env": "pettingzoo.classic.connect_four_v3:env", **memory},
        "modules": tag,
    }


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", resumable())
def test_a_state_continues_in_the_middle_of_the_episodes_bit_for_bit(name, normalize, tmp_path):
    settings = {**resumable()[name], "normalize_observations": normalize and name != "scripted"}
    if name != "scripted":
        needs.extra("mpe2")
        needs.extra("pettingzoo")
    whole, resumed = (make_runner(seed=3, num_envs_per_env_runner=3, **settings) for _ in range(2))
    for num_steps in (7, 1, 6):
        whole.sample(num_steps)
    state = whole.get_state()
    save_checkpoint(tmp_path / "runner", state, metadata={})
    resumed.set_state(load_checkpoint(tmp_path / "runner").state)
    assert_same_state(state, resumed.get_state())
    for num_steps in (1, 4, 60):
        assert_same_chunks(whole.sample(num_steps), resumed.sample(num_steps))
        assert whole.get_metrics() == resumed.get_metrics()
    assert_same_state(whole.get_state(), resumed.get_state())


def assert_same_state(left, right):
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same_state(left[key], right[key])
    elif isinstance(left, list):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same_state(one, other)
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    else:
        assert left == right


def test_a_state_is_a_copy():
    runner = make_runner(Pair, normalize_observations=True)
    runner.sample()
    state = runner.get_state()
    before = repr(state)
    runner.sample()
    assert repr(state) == before


@pytest.mark.parametrize("name", ["scripted", "aec"])  # the second has masks
def test_whoever_writes_into_a_state_changes_no_runner(name):
    runner, other = (make_runner(**resumable()[name]) for _ in range(2))
    for each in (runner, other):
        each.sample(3)
    write_into(runner.get_state())
    assert_same_chunks(runner.sample(4), other.sample(4))
    state = other.get_state()
    runner.set_state(state)
    write_into(state)
    assert_same_chunks(runner.sample(4), other.sample(4))


def test_a_state_from_before_the_first_sample_begins_as_a_new_runner_does():
    resumed = make_runner(Pair, seed=5)
    resumed.set_state(make_runner(Pair, seed=5).get_state())
    assert_same_chunks(resumed.sample(), make_runner(Pair, seed=5).sample())


class Unrepeatable(Pair):
    """Its second environment counts on from one episode to the next."""

    count = 0

    def reset(self, seed=None, options=None):
        type(self).count += 1
        self.mine = self.count if seed % 2 else 0
        return super().reset(seed, options)

    def _all(self, value):
        values = super()._all(value)
        return {
            agent: each + self.mine if isinstance(each, np.ndarray) else each
            for agent, each in values.items()
        }


ONE_MODULE_PER_EPISODE = {
    "policies": [f"p{number}" for number in range(10)],
    "agent_to_module": lambda agent, episode: f"p{episode.id_}",
}


@pytest.mark.parametrize("modules", [{}, ONE_MODULE_PER_EPISODE])
def test_an_environment_that_does_not_repeat_itself_begins_a_new_episode(modules):
    runner, resumed = (make_runner(Unrepeatable, num_envs_per_env_runner=4, **modules) for _ in range(2))
    runner.sample(3)
    with pytest.warns(UserWarning, match="did not repeat its running episode"):
        resumed.set_state(runner.get_state())
    chunks = resumed.sample(2)
    assert [chunk.id_ for chunk in chunks if int(chunk.id_) > 4]
    assert sum(map(len, chunks)) == 8
    for chunk in chunks:
        for agent, episode in chunk.agent_episodes.items():
            # Of a repeated episode the left agent had ended, and the right one goes on.
            assert agent == "right" or int(chunk.id_) > 4
            assert len(episode) == 2
            np.testing.assert_array_equal(np.diff(episode.observations[:, 0]), 1)


def test_a_save_is_a_cut_where_running_episodes_are_too_long_to_be_replayed(monkeypatch):
    monkeypatch.setattr(replayable_agent_env, "MAX_ACTIONS", 2)
    whole, resumed = make_runner(Pair), make_runner(Pair)
    whole.sample(3)
    state = whole.get_state()
    assert state["running"] is None
    whole.truncate()
    resumed.set_state(state)
    assert_same_chunks(whole.sample(9), resumed.sample(9))


def test_a_state_with_statistics_of_other_modules_is_refused_and_nothing_changes():
    runner = make_runner(Pair, normalize_observations=True)
    runner.sample()
    for changed in ({}, {"normalize_observations": True, "policies": ["other"]}):
        other = make_runner(Pair, **changed)
        before = repr(other.get_state())
        with pytest.raises(RestoreMismatchError, match="statistics of observations of default_policy"):
            other.set_state(runner.get_state())
        assert repr(other.get_state()) == before


class Lenient(Scripted):
    """It takes any actions, since normalised observations do not tell the step."""

    def step(self, actions):
        return super().step(dict.fromkeys(actions, self.t))


@given(scripts(), st.integers(1, 5), st.integers(0, 9), st.booleans())
def test_a_resumed_runner_goes_on_as_the_saved_one_wherever_the_save_was(
    scripted, fragment, before, normalize
):
    script, end = scripted
    env, act = (Lenient, None) if normalize else (Scripted, act_by_step)
    settings = {
        "env_config": {"script": script, "end": end},
        "num_envs_per_env_runner": 2,
        "rollout_fragment_length": fragment,
        "agent_to_module": {"a": "odd", "b": "even", "c": "odd"},
        "normalize_observations": normalize,
    }
    whole, resumed = (make_runner(env, act, **settings) for _ in range(2))
    for _ in range(before):
        whole.sample()
    state = whole.get_state()
    resumed.set_state(state)
    assert_same_state(state, resumed.get_state())
    for _ in range(3):
        assert_same_chunks(whole.sample(), resumed.sample())
        assert whole.get_metrics() == resumed.get_metrics()
