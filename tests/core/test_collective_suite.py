"""Our collective for one machine goes through the suite that every author's goes through."""

import pytest

from plugrad.testing.collective_suite import *  # noqa: F403


@pytest.fixture(scope="session")
def collective() -> str:
    return "shared_memory"
