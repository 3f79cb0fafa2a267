"""Evaluation counts the episodes that begin first, not those that are over first."""

import counting
import numpy as np
import pytest
from sampling import Sampling

from plugrad.errors import ConfigError
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.evaluation import evaluate


def make_runner() -> EnvRunner:
    return EnvRunner(config=Sampling(num_envs_per_env_runner=4), act=counting.policy, seed=0)


@pytest.mark.parametrize("num_episodes", [1, 3, 50])
def test_it_returns_the_first_episodes_to_begin(num_episodes):
    runner = make_runner()
    runner.sample(7)  # what was going on before does not count
    evaluation = evaluate(runner, num_episodes=num_episodes, seed=9)
    other = make_runner()
    other.reset(9)
    keys = {int(chunk.id_): int(chunk.observations[0, 0]) for chunk in other.sample(400)}
    expected = [keys[number] for number in range(1, num_episodes + 1)]
    assert evaluation.lengths == [counting.length_of(key) for key in expected]
    np.testing.assert_allclose(evaluation.returns, [counting.return_of(key) for key in expected])


def test_the_same_seed_gives_the_same_returns():
    runner = make_runner()
    first = evaluate(runner, num_episodes=20, seed=1)
    assert evaluate(runner, num_episodes=20, seed=1) == first
    assert evaluate(runner, num_episodes=20, seed=2) != first


def test_no_episodes_is_an_error():
    with pytest.raises(ConfigError, match="at least 1 episode"):
        evaluate(make_runner(), num_episodes=0)
