"""The cases that compare the ops of backends with numpy's: each calls its op, and no argument could be ignored."""

import inspect
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from plugrad import numpy_ops
from plugrad.ops import Ops
from plugrad.testing.backend_probe import leaves
from plugrad.testing.backend_suite import ops as suite
from plugrad.testing.op_cases import CASES, EXTREMES, LOGITS, extremes, inputs

OPS = {name: op for name, op in inspect.getmembers(Ops, inspect.isfunction) if not name.startswith("_")}
ARGUMENTS = [
    (op, name)
    for op, function in OPS.items()
    for name, each in inspect.signature(function).parameters.items()
    if each.default is not each.empty
]


class Watched:
    """numpy's ops, which note what is called; one of them may ignore one of its arguments."""

    def __init__(self, op="", ignored=""):
        self.called, self._op, self._ignored = set(), op, ignored

    def __getattr__(self, name):
        return partial(self._call, name, getattr(numpy_ops, name))

    def _call(self, name, function, *args, **kwargs):
        self.called.add(name)
        if name != self._op:
            return function(*args, **kwargs)
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        return function(**{key: value for key, value in given.items() if key != self._ignored})


class Faulty(SimpleNamespace):
    """numpy's ops, one of which is made another one."""

    def __init__(self, op, fault):
        names = [name for name in dir(numpy_ops) if not name.startswith("_")]
        super().__init__(**{name: getattr(numpy_ops, name) for name in names})
        setattr(self, op, partial(fault, getattr(numpy_ops, op)))


def along_the_first(op, *args, axis=None, **kwargs):
    return op(*args, axis=0 if axis is not None and axis < 0 else axis, **kwargs)


def cast_of_booleans_to_doubles(cast, x, dtype):
    return cast(x, "float64" if x.dtype == np.bool_ and dtype == "float32" else dtype)


def whole_numbers_as_floats(where, condition, x, y):
    found = where(condition, x, y)
    return found.astype(np.float32) if isinstance(x, int) and found.dtype.kind == "i" else found


def results(case, ops):
    return [np.asarray(each) for each in leaves(case.call(ops, *inputs(case.kinds, 3, 4, 7)))]


def are_equal(found, expected):
    return all(
        a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b)
        for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_calls_its_op(case):
    ops = Watched()
    results(case, ops)
    assert case.op in ops.called


@pytest.mark.parametrize(("op", "argument"), ARGUMENTS)
def test_an_op_that_ignores_an_argument_is_found(op, argument):
    cases = [case for case in CASES if case.op == op]
    assert not all(
        are_equal(results(case, Watched(op, argument)), results(case, numpy_ops)) for case in cases
    )


WITHOUT_A_NEGATIVE_AXIS = ("split", "stack", "take_along_axis")
"""No case calls them with one."""


@pytest.mark.parametrize(
    "op", [op for op, argument in ARGUMENTS if argument == "axis" and op not in WITHOUT_A_NEGATIVE_AXIS]
)
def test_an_op_that_takes_a_negative_axis_for_the_first_is_found(op):
    cases = [case for case in CASES if case.op == op]
    assert not all(
        are_equal(results(case, Faulty(op, along_the_first)), results(case, numpy_ops)) for case in cases
    )


@pytest.mark.parametrize(
    ("op", "fault"), [("cast", cast_of_booleans_to_doubles), ("where", whole_numbers_as_floats)]
)
def test_an_op_that_gives_another_dtype_is_found(op, fault):
    cases = [case for case in CASES if case.op == op]
    assert not all(are_equal(results(case, Faulty(op, fault)), results(case, numpy_ops)) for case in cases)


def test_extreme_logits_are_compared_along_their_own_axis():
    with np.errstate(all="ignore"):
        faulty = extremes(Faulty("argmax", along_the_first), EXTREMES, LOGITS)
        expected = extremes(numpy_ops, EXTREMES, LOGITS)
    assert not are_equal([faulty["argmax"]], [expected["argmax"]])


def test_the_authors_test_over_many_ops_names_the_one_that_fails() -> None:
    wrong = Faulty("erf", lambda erf, x: 1.01 * erf(x))
    with (
        np.errstate(all="ignore"),
        pytest.raises(AssertionError, match="op 'erf, of extreme numbers' is not that of"),
    ):
        suite.test_extremes_are_those_of_numpy(wrong, lambda tensors: [np.asarray(each) for each in tensors])
