import pytest

pytest_plugins = ["plugrad.testing.fixtures"]


@pytest.fixture(scope="session")
def algorithm():
    return "redq"


@pytest.fixture
def algorithm_config(algorithm_config):
    return algorithm_config.training(num_critics=3, policy_delay=1)
