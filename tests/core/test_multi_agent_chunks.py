"""What agents get in any order of coming, acting and ending is in their episodes: nothing lost, nothing doubled."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from many_agents import AGENTS, Event, Scripted, act_by_step, joined, make_runner


@st.composite
def scripts(draw):
    """A script of at most 12 steps, and how its episode ends; the last step is where no agent is left, if not later."""
    length, end = draw(st.integers(1, 12)), draw(st.sampled_from(["terminated", "truncated"]))
    ended, seen, arrived = set(), set(), set()
    script = []
    for t in range(length + 1):
        events, is_last = {}, t == length
        for agent in draw(st.permutations(AGENTS)):
            if agent in ended:
                continue
            events[agent] = event = _event(draw, t, is_last, end, agent in seen)
            seen |= {agent} if event.is_observed else set()
            arrived |= {agent} if event.is_observed or event.reward else set()
            ended |= {agent} if event.end else set()
        script.append(events)
        if arrived and arrived <= ended:
            break
    return script, end


def _event(draw, t, is_last, end, was_seen):
    reward = draw(st.none() | st.integers(-9, 9)) if t else None
    is_observed = draw(st.booleans())
    own_end = draw(st.sampled_from([None] * 5 + ["terminated", "truncated"])) if t else None
    if was_seen and ("truncated" in (own_end, not own_end and is_last and end)):
        is_observed = True  # what is truncated has a last observation
    return Event(is_observed, reward, own_end)


def expected_episode(script, end, agent):
    """`(observed steps, rewards, terminated, truncated, return)`; an agent that never acts has no rewards."""
    steps, rewards, total, waiting = [], [], 0, 0
    for t, events in enumerate(script):
        event = events.get(agent)
        if event is None:
            break
        waiting, total = waiting + (event.reward or 0), total + (event.reward or 0)
        ends = event.end or (end if t == len(script) - 1 else None)
        if steps and (event.is_observed or ends):
            rewards.append(waiting)
            waiting = 0
            steps.append(t if event.is_observed else steps[-1])
        elif event.is_observed and not ends:
            steps.append(t)
        if ends:
            return steps, rewards, ends == "terminated", ends == "truncated", total
    return steps, rewards, False, False, total


@given(scripts(), st.integers(1, 9), st.integers(1, 3))
def test_each_agents_chunks_are_what_the_script_says(scripted, fragment, num_envs):
    script, end = scripted
    runner = make_runner(
        Scripted,
        act_by_step,
        env_config={"script": script, "end": end},
        num_envs_per_env_runner=num_envs,
        rollout_fragment_length=fragment,
    )
    chunks, finished = [], set()
    while len(finished) < num_envs + 1:
        new = runner.sample()
        assert sum(map(len, new)) == fragment * num_envs
        chunks += new
        finished |= {chunk.id_ for chunk in new if chunk.is_done}
    found = {key: each for key, each in joined(chunks).items() if key[0] in finished}
    for id_ in finished:
        for agent in AGENTS:
            steps, rewards, terminated, truncated, _ = expected_episode(script, end, agent)
            episode = found.pop((id_, agent), None)
            assert (episode is None) == (not rewards)
            if episode is not None:
                assert episode.observations[:, 1].tolist() == steps
                assert set(episode.observations[:, 0]) == {AGENTS.index(agent)}
                assert episode.actions.tolist() == steps[:-1]
                assert episode.rewards.tolist() == rewards
                assert (episode.terminated, episode.truncated) == (terminated, truncated)
                assert episode.id_ == f"{id_}/{agent}"
    assert not found


@given(scripts(), st.integers(1, 9))
def test_returns_are_all_that_the_environment_gave(scripted, fragment):
    script, end = scripted
    runner = make_runner(
        Scripted, act_by_step, env_config={"script": script, "end": end}, rollout_fragment_length=fragment
    )
    while not any(chunk.is_done for chunk in runner.sample()):
        pass
    metrics = runner.get_metrics()
    totals = {agent: expected_episode(script, end, agent)[-1] for agent in AGENTS}
    assert metrics["episode_return_mean"] == sum(totals.values())
    assert metrics["episode_len_mean"] == len(script) - 1
    for agent, total in totals.items():
        assert metrics.get(f"agent_episode_returns_mean/{agent}", 0) == total


class Turns:
    """Two agents that act in turn without end; an observation is the step, a reward the own last action."""

    possible_agents = ("left", "right")
    observation_spaces: ClassVar = dict.fromkeys(possible_agents, gym.spaces.Box(0, 9999, (1,)))
    action_spaces: ClassVar = dict.fromkeys(possible_agents, gym.spaces.Discrete(4))

    def reset(self, *, seed=None, options=None):
        self.t, self.last = 0, dict.fromkeys(self.possible_agents, 0)
        return {"left": np.zeros(1, np.float32)}, {}

    def step(self, actions):
        self.last.update(actions)
        self.t += 1
        agent, goes_on = self.possible_agents[self.t % 2], {"__all__": False}
        return {agent: np.full(1, self.t, np.float32)}, {agent: self.last[agent]}, goes_on, goes_on, {}


@pytest.mark.parametrize("fragment", [1, 2, 3, 8])
def test_random_samples_and_those_of_policies_mix_where_agents_take_turns(fragment):
    runner = make_runner(Turns, rollout_fragment_length=fragment)
    for is_random in [True, False, False, True, True, False, True, False] * 3:
        (chunk,) = runner.sample(random_actions=is_random)
        for episode in chunk.agent_episodes.values():
            assert is_random or "twice" in episode.extra_model_outputs
            assert episode.t_started == episode.observations[0, 0] // 2
            np.testing.assert_array_equal(episode.actions, episode.rewards)
            np.testing.assert_array_equal(np.diff(episode.observations[:, 0]), 2)
            for values in episode.extra_model_outputs.values():
                np.testing.assert_array_equal(values, 2 * episode.observations[:-1, 0])
        assert fragment < 3 or len(chunk.agent_episodes) == 2


def test_a_fragment_between_an_action_and_its_outcome():
    waits = [
        {"a": Event(True), "b": Event(True)},
        {"b": Event(True, 1)},
        {"a": Event(False, 2), "b": Event(True, 3)},
    ]
    script = [*waits, {"a": Event(True, 4), "b": Event(True, 5)}]
    runner = make_runner(
        Scripted, act_by_step, env_config={"script": script, "end": "truncated"}, rollout_fragment_length=2
    )
    first, second = runner.sample()[0], runner.sample()[0]
    assert list(first.agent_episodes) == ["b"]
    episode = second.agent_episodes["a"]
    np.testing.assert_array_equal(episode.observations, [[0, 0], [0, 3]])
    assert (episode.actions.tolist(), episode.rewards.tolist(), episode.truncated) == ([0], [6.0], True)
