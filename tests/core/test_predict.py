"""What one call of `predict` costs and gives: Python calls are counted, not seconds."""

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from plugrad import Columns, Learner
from plugrad.policy import Policy
from plugrad_ppo import PPOConfig

SPACES = [Discrete(3), Discrete(3, start=2), MultiDiscrete([2, 3]), Box(-0.01, 0.02, (2,), np.float32)]
MOST_CALLS = dict(zip(map(str, SPACES), (52, 52, 94, 64), strict=True))
"""Those of numpy's own Python functions included; the network has about twenty of them."""


def make_learner(told: Space[Any], **model: Any) -> Learner:
    some = PPOConfig().framework("numpy").rl_module(model_config={"fcnet_hiddens": [64, 64], **model})
    some = some.environment(observation_space=Box(-1.0, 1.0, (4,)), action_space=told).debugging(seed=0)
    return some.build_learner()


def calls_of(policy: Policy, observation: Any) -> Counter[str]:
    """The Python functions that one `predict` calls."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found[frame.f_code.co_qualname] += 1

    policy.predict(observation)
    sys.setprofile(count)
    try:
        policy.predict(observation)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("told", SPACES, ids=str)
def test_predict_makes_few_python_calls_and_computes_nothing_that_it_does_not_return(
    told: Space[Any],
) -> None:
    found = calls_of(make_learner(told).get_policy(), np.zeros(4, np.float32))
    assert found.total() <= MOST_CALLS[str(told)], found.most_common()
    assert not [
        name for name in found if "logp" in name or "ActorCritic.initial" in name or "__repr__" in name
    ]


@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.parametrize("model", [{}, {"use_lstm": True, "lstm_cell_size": 4}], ids=["plain", "lstm"])
@pytest.mark.parametrize("told", SPACES, ids=str)
def test_predict_is_what_env_runners_compute_to_the_bit(
    told: Space[Any], model: dict[str, Any], explore: bool
) -> None:
    learner, same = make_learner(told, **model), make_learner(told, **model)
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    one, other = np.random.default_rng(1), np.random.default_rng(1)
    state = None
    for _ in range(3):
        columns = learner.compute_actions(rows, explore=explore, state=state, rng=one)
        actions, after = same._choose_actions(rows, "default_policy", explore, other, state)
        np.testing.assert_array_equal(actions, columns[Columns.ACTIONS])
        np.testing.assert_equal(after, columns.get(Columns.STATE_OUT))
        state = after


def test_threads_that_share_a_policy_get_the_actions_of_their_own_observations() -> None:
    learner = make_learner(Box(-1.0, 1.0, (2,), np.float32))
    policy, rows = learner.get_policy(), np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    expected = np.stack([policy.predict(row)[0] for row in rows])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda row: policy.predict(row)[0], rows))
    finally:
        sys.setswitchinterval(interval)
    np.testing.assert_array_equal(np.stack(found), expected)


def test_threads_that_predict_while_weights_change_get_the_actions_of_one_set_of_weights() -> None:
    learner = make_learner(Box(-10.0, 10.0, (2,), np.float32))
    policy, row = learner.get_policy(), np.ones(4, np.float32)
    before = learner.get_weights()
    after = {name: {key: value + 1 for key, value in each.items()} for name, each in before.items()}
    allowed = set()
    for weights in (after, before):
        learner.set_weights(weights)
        allowed.add(policy.predict(row)[0].tobytes())
    assert len(allowed) == 2
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(lambda: policy.predict(row)[0].tobytes()) for _ in range(300)]
        for number in range(60):
            learner.set_weights(after if number % 2 else before)
        assert {each.result() for each in asked} <= allowed
