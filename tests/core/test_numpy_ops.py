"""The oracle against the definitions: what every backend is compared with must itself be right."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from plugrad import numpy_ops as ops
from plugrad.types import Array

matrices = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.floats(-5, 5)
)


@given(matrices)
def test_softmax_family_agrees_with_its_definitions(x: Array) -> None:
    weights = np.exp(x)
    np.testing.assert_allclose(ops.softmax(x), weights / weights.sum(-1, keepdims=True))
    np.testing.assert_allclose(np.exp(ops.log_softmax(x)), ops.softmax(x))
    np.testing.assert_allclose(ops.logsumexp(x, axis=0), np.log(weights.sum(0)), atol=1e-12)


@given(matrices, st.floats(-1e4, 1e4))
def test_log_softmax_does_not_change_with_a_shift(x: Array, shift: float) -> None:
    np.testing.assert_allclose(ops.log_softmax(x + shift), ops.log_softmax(x), atol=1e-10)


@given(matrices)
def test_sigmoid_and_softplus_agree_with_their_definitions(x: Array) -> None:
    np.testing.assert_allclose(ops.sigmoid(x), 1 / (1 + np.exp(-x)))
    np.testing.assert_allclose(ops.softplus(x), np.log(1 + np.exp(x)))


@given(matrices, st.floats(0.1, 3.0))
def test_huber_is_a_parabola_between_two_lines(x: Array, delta: float) -> None:
    expected = np.where(np.abs(x) <= delta, 0.5 * x**2, delta * (np.abs(x) - 0.5 * delta))
    np.testing.assert_allclose(ops.huber(x, delta), expected)


@given(matrices)
def test_split_undoes_concat(x: Array) -> None:
    parts = [x, x[:1], 2.0 * x]
    found = ops.split(ops.concat(parts), [len(part) for part in parts])
    assert [part.tolist() for part in found] == [part.tolist() for part in parts]


@given(matrices)
def test_one_hot_chooses_what_take_along_axis_takes(x: Array) -> None:
    best = ops.argmax(x, axis=-1)
    chosen = ops.sum(ops.one_hot(best, x.shape[1]) * x, axis=-1)
    assert chosen.tolist() == ops.take_along_axis(x, best[:, None])[:, 0].tolist() == x.max(-1).tolist()


@given(matrices)
def test_scan_of_sums_is_the_cumulative_sum(x: Array) -> None:
    def step(total: Any, row: Any) -> tuple[Any, Any]:
        return total + row, total + row

    last, sums = ops.scan(step, np.zeros(x.shape[1]), x)
    np.testing.assert_allclose(sums, ops.cumulative_sum(x, axis=0))
    assert last.tolist() == sums[-1].tolist()


def test_float32_stays_float32() -> None:
    x = np.asarray([[1.0, 2.0]], np.float32)
    results = [
        ops.softplus(x),
        ops.sigmoid(x),
        ops.huber(x),
        ops.softmax(x),
        ops.relu(x),
        ops.linear(x, x.T, x[0, :1]),
    ]
    assert {str(result.dtype) for result in results} == {"float32"}


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 9),
)
def test_conv2d_agrees_with_its_definition(
    stride: int, kernel_h: int, kernel_w: int, more_h: int, more_w: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, kernel_h + more_h, kernel_w + more_w, 3))
    weight = rng.standard_normal((kernel_h, kernel_w, 3, 4))
    expected = np.zeros((2, more_h // stride + 1, more_w // stride + 1, 4))
    for b, i, j, out in np.ndindex(expected.shape):
        patch = x[b, stride * i : stride * i + kernel_h, stride * j : stride * j + kernel_w]
        expected[b, i, j, out] = (patch * weight[..., out]).sum()
    np.testing.assert_allclose(ops.conv2d(x, weight, stride), expected, atol=1e-12)
