"""The ops that record ONNX graphs: a runtime computes what numpy does."""

from collections.abc import Sequence
from typing import Any

import needs
import numpy as np
import pytest

from plugrad import numpy_ops
from plugrad.errors import ConfigError
from plugrad.testing.op_cases import CASES, Case, inputs
from plugrad.types import Array

runtime = needs.extra("onnxruntime")
needs.extra("onnx")

from plugrad.onnx import Graph, ops  # noqa: E402

NOT_FOR_ACTING = ("cumulative_sum", "expm1", "flip", "huber", "isfinite", "log1p", "norm", "sort")
EXPORTED = [case for case in CASES if case.op not in NOT_FOR_ACTING]


def run(case: Case, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of a case as a graph."""
    graph = Graph()
    tensors = [graph.input(str(n), each.dtype, each.shape) for n, each in enumerate(arrays)]
    found = case.call(ops, *tensors)
    results = flat(found)
    recorded = {f"y{n}": each for n, each in enumerate(results) if not isinstance(each, np.ndarray)}
    if not recorded:
        return results
    session = runtime.InferenceSession(graph.model(recorded, {}))
    computed = iter(session.run(None, {str(n): each for n, each in enumerate(arrays)}))
    return [each if isinstance(each, np.ndarray) else next(computed) for each in results]


def flat(found: Any) -> list[Any]:
    return [each for part in found for each in flat(part)] if isinstance(found, list | tuple) else [found]


@pytest.mark.parametrize("case", EXPORTED, ids=lambda case: case.name)
def test_an_op_gives_what_numpy_gives(case: Case) -> None:
    arrays = [each.astype("f4") if each.dtype == "f8" else each for each in inputs(case.kinds, 4, 3, 0)]
    expected = flat(case.call(numpy_ops, *arrays))
    for found, right in zip(run(case, arrays), expected, strict=True):
        assert found.dtype == np.asarray(right).dtype
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.op in NOT_FOR_ACTING], ids=lambda case: case.name
)
def test_an_op_that_acting_never_needs_says_so(case: Case) -> None:
    with pytest.raises(ConfigError, match=rf"ops\.{case.op} cannot be exported to ONNX"):
        run(case, inputs(case.kinds, 4, 3, 0))
