"""Generalised advantage estimation against the plain sum of its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugrad.columns import Columns
from plugrad.episodes import MultiAgentEpisode, SingleAgentEpisode
from plugrad.errors import BatchError
from plugrad_ppo.connectors import GeneralAdvantageEstimation, generalized_advantages, standardize

EPISODES = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=6)
UNIT = st.floats(0, 1)


def plain_advantages(rewards, values, terminated, gamma, lambda_):
    """One episode: equation 16 of Schulman et al., 2016, as the double loop that it is."""
    values = np.append(values[:-1], 0.0 if terminated else values[-1])
    deltas = [r + gamma * values[t + 1] - values[t] for t, r in enumerate(rewards)]
    return [
        sum((gamma * lambda_) ** (k - t) * deltas[k] for k in range(t, len(rewards)))
        for t in range(len(rewards))
    ]


@given(episodes=EPISODES, gamma=UNIT, lambda_=UNIT, seed=st.integers(0, 2**32 - 1))
def test_advantages_are_those_of_the_plain_loop(episodes, gamma, lambda_, seed):
    rng = np.random.default_rng(seed)
    lengths = np.array([length for length, _ in episodes])
    terminated = np.array([end for _, end in episodes])
    rewards = [rng.normal(size=length).astype(np.float32) for length in lengths]
    values = [rng.normal(size=length + 1).astype(np.float32) for length in lengths]
    advantages, targets = generalized_advantages(
        np.concatenate(rewards), np.concatenate(values), lengths, terminated, gamma=gamma, lambda_=lambda_
    )
    expected = [
        plain_advantages(r, v, end, gamma, lambda_)
        for r, v, end in zip(rewards, values, terminated, strict=True)
    ]
    np.testing.assert_allclose(advantages, np.concatenate(expected), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        targets, np.concatenate(expected) + np.concatenate([v[:-1] for v in values]), rtol=1e-5, atol=1e-5
    )
    assert advantages.dtype == targets.dtype == np.float32


def test_lambda_1_is_the_discounted_return_and_lambda_0_one_step():
    rewards, values = np.float32([1, 2, 4]), np.float32([10, 20, 30, 40])
    one = {"lengths": np.array([3]), "terminated": np.array([False]), "gamma": 0.5}
    _, returns = generalized_advantages(rewards, values, lambda_=1.0, **one)
    np.testing.assert_allclose(returns, [1 + 1 + 1 + 5, 2 + 2 + 10, 4 + 20])
    _, one_step = generalized_advantages(rewards, values, lambda_=0.0, **one)
    np.testing.assert_allclose(one_step, [1 + 10, 2 + 15, 4 + 20])


def test_the_arguments_are_not_changed():
    values = np.float32([1, 2, 3])
    generalized_advantages(np.ones(2), values, np.array([2]), np.array([True]), gamma=0.9, lambda_=0.9)
    np.testing.assert_array_equal(values, [1, 2, 3])


class Valuer:
    """Stands where a learner will: the value of an observation is its first number. Counts the calls."""

    def __init__(self):
        self.calls = []

    def compute_values_of_episodes(self, episodes, *, module_id):
        observations = np.concatenate([each.observations for each in episodes])
        self.calls.append((module_id, len(observations)))
        return observations[:, 0].astype(np.float32)


def episode(steps, seed, **settings):
    rng = np.random.default_rng(seed)
    return SingleAgentEpisode(
        observations=rng.normal(size=(steps + 1, 2)),
        actions=np.zeros(steps),
        rewards=rng.normal(size=steps),
        **settings,
    )


def batch_of(episodes):
    return {Columns.REWARDS: np.concatenate([one.rewards for one in episodes]), "passes": np.zeros(1)}


def test_the_piece_adds_standardised_advantages_and_targets_in_one_call_of_the_values():
    episodes = [episode(4, 0, terminated=True), episode(3, 1, truncated=True), episode(5, 2)]
    learner = Valuer()
    batch = {"default_policy": batch_of(episodes)}
    result = GeneralAdvantageEstimation(0.9, 0.8)(learner=learner, batch=batch, episodes=episodes)[
        "default_policy"
    ]
    assert learner.calls == [("default_policy", 15)]
    raw = np.concatenate(
        [plain_advantages(one.rewards, one.observations[:, 0], one.terminated, 0.9, 0.8) for one in episodes]
    )
    values = np.concatenate([one.observations[:-1, 0] for one in episodes])
    np.testing.assert_array_equal(result[Columns.VF_PREDS], values.astype(np.float32))
    np.testing.assert_allclose(result[Columns.VALUE_TARGETS], raw + values, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        result[Columns.ADVANTAGES], (raw - raw.mean()) / raw.std(), rtol=1e-4, atol=1e-5
    )
    assert result["passes"] is batch["default_policy"]["passes"]
    assert Columns.ADVANTAGES not in batch["default_policy"]


def test_each_module_learns_from_its_own_episodes():
    agents = {"a": episode(4, 0), "b": episode(2, 1, terminated=True)}
    together = MultiAgentEpisode(agent_episodes=agents, agent_to_module={"a": "p0", "b": "p1"})
    piece, learner = GeneralAdvantageEstimation(0.9, 0.8), Valuer()
    batch = {"p0": batch_of([agents["a"]]), "p1": batch_of([agents["b"]]), "ready": {"obs": np.zeros(3)}}
    result = piece(learner=learner, batch=batch, episodes=[together])
    assert learner.calls == [("p0", 5), ("p1", 3)]
    assert result["ready"] is batch["ready"]
    for module_id, agent in (("p0", "a"), ("p1", "b")):
        alone = piece(learner=learner, batch={"default_policy": batch[module_id]}, episodes=[agents[agent]])
        np.testing.assert_array_equal(
            result[module_id][Columns.ADVANTAGES], alone["default_policy"][Columns.ADVANTAGES]
        )


def test_a_ready_batch_is_returned_as_it_is():
    batch = {"default_policy": {Columns.ADVANTAGES: np.ones(3)}}
    learner = Valuer()
    assert GeneralAdvantageEstimation(0.9, 0.8)(learner=learner, batch=batch, episodes=[]) == batch
    assert learner.calls == []


def test_rows_that_are_not_those_of_the_episodes_are_refused():
    episodes = [episode(4, 0)]
    with pytest.raises(BatchError, match="'default_policy': 3 rows, but its 1 episodes have 4 steps"):
        GeneralAdvantageEstimation(0.9, 0.8)(
            learner=Valuer(), batch={"default_policy": {Columns.REWARDS: np.zeros(3)}}, episodes=episodes
        )


def test_equal_advantages_become_zero_and_small_spreads_are_not_blown_up():
    np.testing.assert_array_equal(standardize(np.full(5, 3.0, np.float32)), 0)
    np.testing.assert_allclose(standardize(np.float32([-1e-6, 1e-6])), [-0.01, 0.01], rtol=1e-4)
