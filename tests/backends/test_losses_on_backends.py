"""The pure losses on every backend: values and gradients, against numpy written from the papers."""

import numpy as np
import pytest
from loss_cases import CASES

from plugrad import Columns
from plugrad.losses import agg_mask, mean_over_rows


def slopes(case, number):
    """The gradient of the sum of the rows by one input, by central differences in float64."""
    wide, h = case.inputs[number].astype(np.float64), 1e-6
    found = np.empty_like(wide)
    for index in np.ndindex(wide.shape):
        sums = []
        for step in (h, -h):
            moved = wide.copy()
            moved[index] += step
            inputs = [moved if n == number else x.astype(np.float64) for n, x in enumerate(case.inputs)]
            sums.append(type(case)(**{**vars(case), "inputs": tuple(inputs)}).expected.sum())
        found[index] = (sums[0] - sums[1]) / (2 * h)
    return found


def test_values_and_gradients_are_those_of_the_papers(ops, to_numpy, gradients):
    for case in CASES:
        tensors = [ops.asarray(x) for x in case.inputs]
        np.testing.assert_allclose(
            to_numpy(case.call(ops, *tensors)), case.expected, rtol=3e-6, atol=1e-6, err_msg=case.name
        )
        # Frameworks refuse to ask for the gradient of what has none, such as a weight: its inputs are added.
        own = float(len(case.constants) == len(tensors))
        found = gradients(
            lambda *xs, case=case, own=own: (
                ops.sum(case.call(ops, *xs)) + (sum(map(ops.sum, xs)) if own else 0.0)
            ),
            tensors,
        )
        floats = [n for n, x in enumerate(case.inputs) if x.dtype == np.float32]
        for n, gradient in zip(floats, found, strict=True):
            expected = np.full_like(case.inputs[n], own) if n in case.constants else slopes(case, n)
            np.testing.assert_allclose(
                to_numpy(gradient), expected, rtol=1e-4, atol=2e-5, err_msg=f"{case.name}, input {n}"
            )


@pytest.mark.parametrize("agg", ["token-mean", "sequence-mean"])
def test_the_mean_over_tokens_or_sequences(ops, to_numpy, gradients, agg):
    shown = np.array([[True, True, True], [True, False, False], [False] * 3])
    x = np.float32([[1.0, 2.0, 6.0], [5.0, np.inf, np.nan], [np.nan, 1.0, 1.0]])
    batch = {Columns.LOSS_MASK: ops.asarray(agg_mask(shown, agg))}
    assert (
        to_numpy(mean_over_rows(ops, ops.asarray(x), batch)) == {"token-mean": 3.5, "sequence-mean": 4.0}[agg]
    )
    (found,) = gradients(lambda y: mean_over_rows(ops, y, batch), [ops.asarray(np.nan_to_num(x))])
    share = {"token-mean": [0.25, 0.25], "sequence-mean": [1 / 6, 0.5]}[agg]
    expected = [[share[0]] * 3, [share[1], 0.0, 0.0], [0.0] * 3]
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-6)
