"""Metrics: scalars within a step, plain values outside, and nothing that keeps a batch alive."""

import numpy as np
import pytest

from plugrad import ALL_MODULES, numpy_ops
from plugrad.errors import LossError
from plugrad.metrics import SEPARATOR, Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(numpy_ops, np.array)


def test_outside_a_step_a_value_is_reported_as_it_is(metrics):
    array = np.arange(3)
    metrics.register("p", "count", 3)
    metrics.register("p", "rate", np.float32(0.5))
    metrics.register("p", "flag", np.bool_(True))
    metrics.register(ALL_MODULES, "histogram", array)
    array[:] = 9
    assert metrics.results["p"] == {"count": 3, "rate": 0.5, "flag": True}
    assert [type(value) for value in metrics.results["p"].values()] == [int, float, bool]
    assert metrics.results[ALL_MODULES]["histogram"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", [2, 2.0, True, np.float64(2), np.int32(2), np.array(2.0)])
def test_within_a_step_any_number_becomes_a_float32_scalar(metrics, value):
    with metrics.step() as collected:
        metrics.register("p", "loss", value)
    assert list(collected) == [f"p{SEPARATOR}loss"]
    found = collected[f"p{SEPARATOR}loss"]
    assert (np.shape(found), found.dtype, float(found)) == ((), np.float32, float(value))
    assert metrics.results == {}


@pytest.mark.parametrize("value", [np.ones(1), np.ones((2, 3)), [1.0, 2.0]])
def test_within_a_step_only_a_scalar_is_a_metric(metrics, value):
    with (
        metrics.step(),
        pytest.raises(LossError, match=r"'loss' of module 'p' has shape \[.*take its mean") as bad,
    ):
        metrics.register("p", "loss", value)
    assert bad.value.facts == {"module_id": "p"}


def test_a_step_within_a_step_collects_into_the_outer_one(metrics):
    with metrics.step() as outer:
        metrics.register("p", "a", 1)
        with metrics.step() as inner:
            metrics.register("p", "b", 2)
        metrics.register("p", "c", 3)
    assert inner is outer
    assert [name.split(SEPARATOR)[1] for name in outer] == ["a", "b", "c"]


def fail_in_a_step(metrics):
    with metrics.step():
        metrics.register("p", "a", 1)
        raise ZeroDivisionError


def test_each_step_begins_empty_and_an_error_ends_it(metrics):
    with pytest.raises(ZeroDivisionError):
        fail_in_a_step(metrics)
    metrics.register("p", "outside", 1)
    with metrics.step() as fresh:
        pass
    assert (fresh, metrics.results) == ({}, {"p": {"outside": 1}})


def test_means_come_back_as_floats_by_module_beside_what_is_there(metrics):
    metrics.register("p", "before", 7)
    metrics.take_means({f"p{SEPARATOR}loss": np.float32(0.5), f"{ALL_MODULES}{SEPARATOR}n": np.float32(2)})
    assert metrics.results == {"p": {"before": 7, "loss": 0.5}, ALL_MODULES: {"n": 2.0}}
    assert type(metrics.results["p"]["loss"]) is float


def test_a_new_update_forgets_the_results_but_not_who_kept_them(metrics):
    metrics.register("p", "loss", 1)
    kept = metrics.results
    metrics.begin_update()
    metrics.register("p", "loss", 2)
    assert (kept["p"]["loss"], metrics.results["p"]["loss"]) == (1, 2)
