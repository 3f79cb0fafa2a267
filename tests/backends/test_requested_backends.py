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
    """Where it is the only one, every test that asks for a `backend` is there for it, and not marked as skipped.

    But those that a suite runs on a reference alone. Of several backends, each has tests.
    """
    backends: dict[str, set[str]] = {}
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("backend") in REQUESTED and not item.get_closest_marker("skip"):
            test = f"{item.path}::{getattr(item, 'originalname', item.name)}"
            backends.setdefault(test, set()).add(parameters["backend"])
    ran = [test for test in backends if name in backends[test]]
    assert len(ran) == len(backends) if len(REQUESTED) == 1 else ran or not backends
