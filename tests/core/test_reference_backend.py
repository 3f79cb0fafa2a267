"""The reference backend goes through the suite too: what judges must itself hold."""

import pytest

from plugrad.testing.backend_suite import *  # noqa: F403


@pytest.fixture(scope="session")
def backend() -> str:
    return "numpy"
