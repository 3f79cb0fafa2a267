"""What plugrad's suite asks for: which backend."""

import pytest

pytest_plugins = ["plugrad.testing.fixtures"]


@pytest.fixture(scope="session")
def backend() -> str:
    """The name of the entry point."""
    return "template"
