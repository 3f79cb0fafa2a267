import pytest

pytest_plugins = ["plugrad.testing.fixtures"]


@pytest.fixture(scope="session")
def algorithm():
    return "mdqn"
