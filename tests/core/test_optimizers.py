"""The neutral optimizers against their papers' formulas, step by step, in plain float64 numpy."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from plugrad import numpy_ops as ops
from plugrad.errors import ConfigError
from plugrad.gradients import Layout
from plugrad.optimizers import OPTIMIZERS, SCALAR_SLOTS, Optimizer, make_optimizer
from plugrad.types import Array

STEPS, SIZE = 100, 7
LR = [0.05 * 0.99**n for n in range(STEPS)]


class NumpyVariable:
    """A float32 array that keeps its place; the flat parameters of one layout."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value, np.float32)
        self.layout = Layout(("p/w",), (self.value.shape,))

    def read(self) -> Array:
        return self.value

    def assign(self, value: Any) -> None:
        self.value = np.asarray(value, np.float32).reshape(self.value.shape)

    def snapshot(self) -> Array:
        return self.value.copy()

    def numpy(self) -> Array:
        return self.value.copy()


def gradients(seed: int = 0) -> list[Array]:
    """Of very different sizes, as layers have, and with an entry that is always zero."""
    rng = np.random.default_rng(seed)
    scales = np.array([1e-4, 1e-2, 0.3, 1.0, 30.0, 1e3, 0.0])
    return [np.float32(scales * (rng.standard_normal(SIZE) + 0.2)) for _ in range(STEPS)]


def start() -> Array:
    return np.float32(np.linspace(-2, 2, SIZE))


# --- the formulas, each as its paper (or torch's documentation) writes it ------------------------------------------

Loop = Callable[..., Iterator[Array]]


def adam(p: Array, *, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0) -> Iterator[Array]:
    m, v = np.zeros(SIZE), np.zeros(SIZE)
    for t, (g, lr) in enumerate(zip(gradients(), LR, strict=True), start=1):
        g = np.float64(g)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        p = p - lr * weight_decay * p - lr * m_hat / (np.sqrt(v_hat) + eps)
        yield p


def adamw(p: Array, *, weight_decay=0.01, **rest: float) -> Iterator[Array]:
    return adam(p, weight_decay=weight_decay, **rest)


def sgd(p: Array, *, momentum=0.0, nesterov=False) -> Iterator[Array]:
    buffer = np.zeros(SIZE)
    for g, lr in zip(gradients(), LR, strict=True):
        g = np.float64(g)
        buffer = momentum * buffer + g
        p = p - lr * (g + momentum * buffer if nesterov else buffer)
        yield p


def rmsprop(p: Array, *, alpha=0.99, eps=1e-8, momentum=0.0) -> Iterator[Array]:
    v, buffer = np.zeros(SIZE), np.zeros(SIZE)
    for g, lr in zip(gradients(), LR, strict=True):
        g = np.float64(g)
        v = alpha * v + (1 - alpha) * g**2
        buffer = momentum * buffer + g / (np.sqrt(v) + eps)
        p = p - lr * buffer
        yield p


CASES = [
    (adam, {}),
    (adam, {"beta1": 0.5, "beta2": 0.9, "eps": 1e-3}),
    (adam, {"beta1": 0.0, "beta2": 0.0}),
    (adamw, {}),
    (adamw, {"weight_decay": 0.3, "eps": 1e-5}),
    (sgd, {}),
    (sgd, {"momentum": 0.9}),
    (sgd, {"momentum": 0.9, "nesterov": True}),
    (rmsprop, {}),
    (rmsprop, {"alpha": 0.9, "momentum": 0.5, "eps": 1e-2}),
]


@pytest.mark.parametrize(("formula", "settings"), CASES)
def test_a_hundred_steps_agree_with_the_formula_in_float64(formula, settings):
    optimizer = make_optimizer({"type": formula.__name__, **settings})
    slots = {name: np.float32(0 if name in SCALAR_SLOTS else np.zeros(SIZE)) for name in optimizer.slot_names}
    p, expected = start(), np.float64(start())
    reference = formula(expected, **settings)
    for g, lr in zip(gradients(), LR, strict=True):
        change, slots = optimizer.compute(ops, g, p, slots, np.float32(lr))
        assert change.dtype == np.float32
        p, expected = p - change, next(reference)
        np.testing.assert_allclose(p, expected, rtol=2e-5, atol=2e-5)
    assert np.abs(p - start())[:-1].min() > 1e-5


def test_the_bias_correction_does_not_drift():
    """0.999 and 0.001 as float32 do not add up to 1: a tenth of a thousandth of the step, for ever."""
    optimizer = make_optimizer({"type": "adam"})
    g = np.float32(np.full(SIZE, 3.0))
    slots = {name: np.float32(0 if name in SCALAR_SLOTS else np.zeros(SIZE)) for name in optimizer.slot_names}
    for _ in range(5000):
        change, slots = optimizer.compute(ops, g, start(), slots, np.float32(1.0))
    np.testing.assert_allclose(change, 1.0, rtol=1e-6)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_new_slots_have_the_names_shapes_and_dtype_of_the_old(kind):
    optimizer = make_optimizer({"type": kind})
    slots = {name: np.float32(0 if name in SCALAR_SLOTS else np.zeros(SIZE)) for name in optimizer.slot_names}
    _, new = optimizer.compute(ops, gradients()[0], start(), slots, np.float32(0.1))
    assert {k: (np.shape(v), v.dtype) for k, v in new.items()} == {
        k: (np.shape(v), v.dtype) for k, v in slots.items()
    }


def bound(settings: dict[str, Any]) -> Optimizer:
    optimizer = make_optimizer(settings)
    assert not optimizer.is_bound
    optimizer.bind(NumpyVariable(start()), NumpyVariable, np.zeros)
    assert optimizer.is_bound
    return optimizer


@pytest.mark.parametrize(("formula", "settings"), CASES[:1] + CASES[4:6])
def test_step_moves_parameters_and_slots(formula, settings):
    optimizer = bound({"type": formula.__name__, **settings})
    assert set(optimizer.slots) == set(optimizer.slot_names)
    for g, lr, expected in zip(gradients(), LR, formula(np.float64(start()), **settings), strict=True):
        optimizer.lr.assign(lr)
        optimizer.step(ops, g, lambda new, old: new)
        np.testing.assert_allclose(optimizer.parameters.read(), expected, rtol=2e-5, atol=2e-5)


def test_the_learning_rate_is_zero_until_it_is_set():
    optimizer = bound({"type": "adamw"})
    optimizer.step(ops, gradients()[0], lambda new, old: new)
    np.testing.assert_array_equal(optimizer.parameters.read(), start())


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_guarded_step_changes_nothing(kind):
    optimizer = bound({"type": kind})
    optimizer.lr.assign(0.1)
    optimizer.step(ops, gradients()[0], lambda new, old: new)
    before = [variable.numpy() for variable in (optimizer.parameters, *optimizer.slots.values())]
    optimizer.step(ops, np.float32(np.full(SIZE, np.nan)), lambda new, old: old)
    after = [variable.numpy() for variable in (optimizer.parameters, *optimizer.slots.values())]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"type": "adma"}, r"type 'adma'; there are adam, adamw, sgd, rmsprop\. Did you mean 'adam'\?"),
        ({"type": None}, "type None; there are adam"),
        ({"type": "sgd", "eps": 1e-8}, "'sgd' has no setting 'eps'; it has momentum, nesterov"),
        (
            {"epsilon": 1e-8},
            r"'adam' has no setting 'epsilon'; it has beta1, beta2, eps\. Did you mean 'eps'\?",
        ),
        ({"type": "adam", "lr": 1e-3}, "'adam' has no setting 'lr'"),
        ({"type": "adam", "parameters": 1}, "'adam' has no setting 'parameters'"),
    ],
)
def test_settings_that_no_optimizer_has_are_refused_with_the_closest(settings, words):
    with pytest.raises(ConfigError, match=words):
        make_optimizer(settings)


def test_settings_reach_the_optimizer():
    assert make_optimizer({}) != make_optimizer({})
    assert repr(make_optimizer({"eps": 1e-5})) == "Adam(beta1=0.9, beta2=0.999, eps=1e-05)"
    assert repr(make_optimizer({"type": "sgd", "momentum": 0.5})) == "SGD(momentum=0.5, nesterov=False)"
