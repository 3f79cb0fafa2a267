"""Which device a learner computes on: the first one, the one that is named, or one by another name."""

import pytest

from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import BackendInfo
from plugrad.learner.modules.build import choose_device
from plugrad.testing.tiny_learners import tiny_config

SEEN = BackendInfo(
    "seer", "1", ("cuda:0", "cuda:1", "cpu"), device_aliases={"gpu": "cuda:0", "gpu:1": "cuda:1"}
)


@pytest.mark.parametrize(
    ("asked", "found"),
    [("auto", "cuda:0"), ("cuda:1", "cuda:1"), ("gpu", "cuda:0"), ("gpu:1", "cuda:1"), ("cpu", "cpu")],
)
def test_a_device_is_found_by_each_of_its_names(asked, found):
    assert choose_device(tiny_config("numpy").framework("numpy", device=asked), SEEN) == found


def test_an_unknown_device_is_refused_with_those_that_the_backend_sees():
    with pytest.raises(ConfigError, match=r"device 'gpu:2': backend 'seer' sees cuda:0, cuda:1, cpu"):
        choose_device(tiny_config("numpy").framework("numpy", device="gpu:2"), SEEN)
