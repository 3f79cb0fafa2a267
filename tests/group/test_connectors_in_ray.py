"""Training with connectors in env runners: processes, and Ray actors; as with connectors in the learner."""

import pytest
from connected import config, difference


@pytest.mark.parametrize("env_runner_backend", ["process", "ray"])
def test_the_weights_are_those_of_connectors_in_the_learner(cluster: None, env_runner_backend: str) -> None:
    found, in_the_learner, in_env_runners = difference(config("numpy", env_runner_backend))
    assert found < 1e-6
    assert in_the_learner == in_env_runners == 2 * 64
