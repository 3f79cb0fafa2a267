"""`precision` where the backend has no bfloat16, and what is no precision."""

import pytest
from learning import ppo_config

from plugrad.errors import ConfigError


def test_a_backend_without_bfloat16_refuses_it_when_the_learner_is_built():
    with pytest.raises(
        ConfigError, match=r"""precision='bf16': backend 'numpy' does not declare 'bfloat16': type"""
    ):
        ppo_config("numpy").framework("numpy", precision="bf16").build_learner()


@pytest.mark.parametrize("name", ["float16", "fp16", "half"])
def test_float16_is_refused_with_the_reason(name):
    with pytest.raises(ConfigError, match=r'gradients become 0 unless losses are scaled.*precision="bf16"'):
        ppo_config("numpy").framework("numpy", precision=name)


def test_another_name_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match="'float32', 'bf16'"):
        ppo_config("numpy").framework("numpy", precision="bfloat")
