"""A backend that PLUGRAD_TEST_BACKENDS asks for must run: a missing framework fails here, not a skip."""

import importlib
import os

import numpy as np
import pytest

REQUESTED = os.environ.get("PLUGRAD_TEST_BACKENDS", "").replace(",", " ").split()


@pytest.mark.parametrize("name", REQUESTED)
def test_requested_backend_runs(name: str) -> None:
    ops = importlib.import_module(f"plugrad_{name}.ops")
    assert np.asarray(ops.exp(ops.zeros((2,)))).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", REQUESTED)
def test_collected_tests_run_on_requested_backend(name: str, request: pytest.FixtureRequest) -> None:
    """Of the collected tests that ask for a `backend`, some are there for it and not marked as skipped."""
    cases = [item for item in request.session.items if hasattr(item, "callspec")]
    asking = [item for item in cases if "backend" in item.callspec.params]
    ran = {item.callspec.params["backend"] for item in asking if not item.get_closest_marker("skip")}
    assert name in ran or not asking
