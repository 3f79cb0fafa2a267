"""How often lost processes are replaced, and the settings of standby learners."""

import pytest

from plugrad import AlgorithmConfig
from plugrad.errors import ConfigError
from plugrad.workers.answers import RestartLimit


def test_so_many_restarts_are_allowed_in_any_hour():
    seconds = [0.0]
    limit = RestartLimit(3, clock=lambda: seconds[0])
    assert limit.take(1)
    seconds[0] = 1800.0
    assert limit.take(2)
    assert not limit.take(1)
    seconds[0] = 3599.0
    assert not limit.take(1)
    seconds[0] = 3600.0  # the first is an hour ago, the others are not
    assert not limit.take(2)
    assert limit.take(1)
    seconds[0] = 9000.0
    assert limit.take(3)
    assert limit.used_up == "max_restarts=3 are used up for this hour"


def test_none_are_allowed_with_max_restarts_0():
    assert not RestartLimit(0).take(1)


def test_there_is_one_standby_with_standby_and_none_otherwise():
    config = AlgorithmConfig()
    assert config.num_standby_learners == 0
    config = config.learners(on_failure="standby")
    assert config.num_standby_learners == 1
    config = config.learners(num_standby_learners=3).learners(timeout_s=5)
    assert config.num_standby_learners == 3
    assert AlgorithmConfig.from_toml(config.to_toml()) == config
    assert AlgorithmConfig.from_toml('[learners]\non_failure = "standby"').num_standby_learners == 1
    assert config.learners(on_failure="shrink").num_standby_learners == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"num_standby_learners": 2},
            r"=2 needs on_failure=\"standby\", found on_failure='restart'",
        ),
        ({"on_failure": "shrink", "num_standby_learners": 1}, "found on_failure='shrink'"),
        ({"on_failure": "standby", "num_standby_learners": 0}, "needs num_standby_learners >= 1"),
        ({"on_failure": "standby", "num_standby_learners": -1}, "num_standby_learners"),
    ],
)
def test_other_numbers_of_standbys_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        AlgorithmConfig().learners(**settings)
