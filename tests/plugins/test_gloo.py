"""The collective over gloo goes through the suite that every author's goes through."""

import needs
import pytest

from plugrad.testing.collective_suite import *  # noqa: F403


@pytest.fixture(scope="session")
def collective() -> str:
    needs.backend("torch")
    return "gloo"
