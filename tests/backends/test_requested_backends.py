"""A backend that PLUGRAD_TEST_BACKENDS asks for must run: a missing framework fails here, not a skip."""

import importlib
import os

import numpy as np
import pytest
from samples import SAMPLED

REQUESTED = os.environ.get("PLUGRAD_TEST_BACKENDS", "").replace(",", " ").split()


@pytest.mark.parametrize("name", REQUESTED)
def test_requested_backend_runs(name: str) -> None:
    ops = importlib.import_module(f"plugrad_{name}.ops")
    assert np.asarray(ops.exp(ops.zeros((2,)))).tolist() == [1.0, 1.0]


SAMPLED_IS_ALONE = REQUESTED == [SAMPLED]


@pytest.mark.parametrize("name", [each for each in REQUESTED if SAMPLED_IS_ALONE or each != SAMPLED])
def test_collected_tests_run_on_requested_backend(name: str, request: pytest.FixtureRequest) -> None:
    """Every test that asks for a `backend` is there for this one, and not marked as skipped.

    But those that a suite runs on a reference alone, and those of which one case is drawn from all backends.
    """
    backends: dict[str, set[str]] = {}
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        product = item.get_closest_marker("cross_product")
        is_drawn = product and (
            set(parameters) == {"backend"} or "backend" not in (product.args or ("backend",))
        )
        if parameters.get("backend") in REQUESTED and not is_drawn and not item.get_closest_marker("skip"):
            test = f"{item.path}::{getattr(item, 'originalname', item.name)}"
            backends.setdefault(test, set()).add(parameters["backend"])
    assert [test for test, ran in backends.items() if name not in ran] == []
