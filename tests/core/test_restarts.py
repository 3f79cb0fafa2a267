"""How often lost processes are replaced, and the settings of standby learners."""

import pytest

from plugrad import AlgorithmConfig
from plugrad.errors import ConfigError
from plugrad.workers.answers import RestartLimit, gather_with_pings


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


class SlowActor:
    """An actor and the calls to it: it answers each ping, and its request as the wait number `after` begins."""

    def __init__(self, after: int) -> None:
        self.waits, self.after = 0, after

    def ping(self) -> str:
        return "ping"

    def wait(self, refs: list[str], timeout_s: float) -> list[str]:
        self.waits += "request" in refs
        return [each for each in refs if each == "ping" or self.waits == self.after]

    def get(self, rank: int, ref: str) -> str:
        return f"answer of {rank} to a {ref}"


def test_who_compiles_for_long_and_answers_pings_is_waited_for():
    """With `timeout_s=1` and a `build_timeout_s` of an hour there are thousands of pings."""
    actor = SlowActor(after=5000)
    found = gather_with_pings(actor, {3: actor}, {3: "request"}, timeout_s=6000, ping_timeout_s=1)
    assert found == {3: "answer of 3 to a request"}
    late = SlowActor(after=5000)
    (lost,) = gather_with_pings(late, {3: late}, {3: "request"}, timeout_s=4999, ping_timeout_s=1).values()
    assert str(lost) == "learner 3 did not answer in 4999 s"
    assert late.waits == 4999
