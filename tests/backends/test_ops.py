"""What `plugrad.testing.backend_suite` leaves open about our ops: that twins stay twins, and torch's traced graph."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from plugrad import numpy_ops
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.ops import Ops
from plugrad.testing.backend_probe import leaves, weighted_sum
from plugrad.testing.fixtures import requires
from plugrad.testing.op_cases import CASES, EXTREMES, KINKS, LOGITS, Case, extremes, inputs
from plugrad.types import Tensor

DECLARED = {name: f for name, f in vars(Ops).items() if inspect.isfunction(f) and not name.startswith("_")}
Function = Callable[..., Any]


def public_functions(module: Any) -> dict[str, Any]:
    own = inspect.getmembers(module, lambda x: inspect.isfunction(x) and x.__module__ == module.__name__)
    return {name: function for name, function in own if not name.startswith("_")}


@pytest.mark.smoke
def test_backend_defines_the_ops_of_the_protocol_in_its_order_and_no_others(backend: str) -> None:
    """Twins are read side by side. A function of the framework may be an op as it is."""
    module = importlib.import_module(f"plugrad_{backend}.ops")
    own = {name: each for name, each in public_functions(module).items() if each.__name__ == name}
    in_file = sorted(own, key=lambda name: own[name].__code__.co_firstlineno)
    assert in_file == [name for name in DECLARED if name in own]
    assert [name for name in DECLARED if not callable(getattr(module, name, None))] == []


def test_numpy_has_the_ops_of_the_protocol_and_no_others() -> None:
    assert sorted(public_functions(numpy_ops)) == sorted(DECLARED)


@pytest.mark.parametrize("name", DECLARED)
def test_every_op_is_documented_and_has_a_case(name: str) -> None:
    assert inspect.getdoc(DECLARED[name])
    assert name in {case.op for case in CASES}
    assert set(KINKS) <= set(DECLARED)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_sums_have_the_dtype_of_what_is_summed(ops: Ops, to_numpy: Callable[[Any], Any], dtype: str) -> None:
    given = np.asarray([[1, 2], [3, 4]], dtype)
    for own, read in ((ops, to_numpy), (numpy_ops, np.asarray)):
        x = own.asarray(given)
        found = (own.sum(x), own.sum(x, axis=0), own.sum(x, -1, keepdims=True), own.cumulative_sum(x))
        expected = (10, [4, 6], [[3], [7]], [[1, 3], [3, 7]])
        for each, want in zip(found, expected, strict=True):
            assert read(each).dtype == dtype
            np.testing.assert_array_equal(read(each), want)


@pytest.fixture
def host_ops(backend: str) -> Ops:
    """The backend's tensor functions where no learner chose a device."""
    module: Any = importlib.import_module(f"plugrad_{backend}.ops")
    return cast(Ops, module)


def test_every_op_is_the_same_in_a_traced_graph(
    host_ops: Ops, backend_info: BackendInfo, gradients: Function, trace: Function
) -> None:
    """In float64, all cases and gradients as one graph: the suite leaves out torch's, whose compiler takes minutes.

    Where float64 is not declared, the suite's own program of all ops proves the same.
    """
    requires(backend_info, Capability.FLOAT64)
    arrays = [inputs(case.kinds, 3, 4, seed) for seed, case in enumerate(CASES)]
    ends = np.cumsum([0, *map(len, arrays)])

    def one(case: Case, tensors: Sequence[Tensor]) -> list[Tensor]:
        results = leaves(case.call(host_ops, *tensors))
        if case.differentiable:
            results += gradients(
                lambda *xs: weighted_sum(host_ops, leaves(case.call(host_ops, *xs)), "float64"), tensors
            )
        return [host_ops.cast(x, "float64") for x in results]

    def everything(*tensors: Tensor) -> list[Tensor]:
        bounds = zip(CASES, ends, ends[1:], strict=False)
        return [x for case, begin, end in bounds for x in one(case, tensors[begin:end])]

    flat_arrays = [x for case_arrays in arrays for x in case_arrays]
    eager = everything(*map(host_ops.asarray, flat_arrays))
    for want, got in zip(eager, trace(everything, flat_arrays), strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-6, atol=1e-7)


def test_extremes_are_those_of_numpy_in_a_traced_graph(host_ops: Ops, trace: Function) -> None:
    found = trace(lambda *xs: [*extremes(host_ops, *xs).values()], [EXTREMES, LOGITS])
    with np.errstate(all="ignore"):
        expected = [*extremes(numpy_ops, EXTREMES, LOGITS).values()]
    for want, got in zip(expected, found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-30)
