"""The pure losses give what their papers say, and the means of a batch what a learner of all its rows takes."""

import inspect

import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, ValueLearner, largest_difference, value_config
from loss_cases import CASES

from plugrad import DEFAULT_MODULE_ID, Columns, losses, numpy_ops
from plugrad.errors import BatchError, ConfigError
from plugrad.losses import agg_mask, mean_over_rows
from plugrad.testing.taking_turns import take_turns

P = DEFAULT_MODULE_ID


@pytest.mark.parametrize("case", CASES, ids=lambda each: each.name)
def test_a_value_per_row_is_what_the_paper_says(case):
    found = case.call(numpy_ops, *case.inputs)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, case.expected, rtol=2e-6, atol=1e-6)


def test_every_loss_has_a_case():
    rest = {"agg_mask", "check_one_per_row", "find_loss", "mean_over_rows", "named_loss"}
    rest |= {
        "generalized_advantage_estimation",
        "n_step_returns",
        "vtrace",
    }  # over steps: with their own tests
    functions = {name for name in losses.__all__ if inspect.isfunction(getattr(losses, name))}
    assert {case.name.split(" ")[0] for case in CASES} == functions - rest


@pytest.mark.parametrize("case", CASES, ids=lambda each: each.name)
def test_losses_keep_the_axes_of_sequences(case):
    """What holds of rows [B] holds of steps [B, T]: one step beside another."""

    def doubled(x, axis):
        return np.stack([x, x], axis + 1)

    axes = case.rows or (0,) * len(case.inputs)
    twice = [doubled(x, axis) for x, axis in zip(case.inputs, axes, strict=True)]
    found = case.call(numpy_ops, *twice)
    np.testing.assert_allclose(found, np.stack([case.expected] * 2, 1), rtol=2e-6, atol=1e-6)


def test_what_is_no_estimator_or_mean_is_named():
    with pytest.raises(ConfigError, match="estimator='k4': write one of 'k1', 'k2', 'k3'"):
        losses.kl_penalty(numpy_ops, np.zeros(2), np.zeros(2), "k4")
    with pytest.raises(ConfigError, match="agg='mean': write one of 'token-mean', 'sequence-mean'"):
        agg_mask(np.ones((2, 3), bool), "mean")
    with pytest.raises(
        BatchError, match=r"expected which steps of sequences count, \[B, T\], found shape \[3\]"
    ):
        agg_mask(np.ones(3, bool), "token-mean")


LENGTHS = np.array([5, 1, 2, 4, 1, 5, 3, 2])
SHOWN = np.arange(5) < LENGTHS[:, None]
EXPECTED = {
    "token-mean": lambda x: x[SHOWN].mean(),
    "sequence-mean": lambda x: np.mean([row[:n].mean() for row, n in zip(x, LENGTHS, strict=True)]),
}
AGGS = pytest.mark.parametrize("agg", EXPECTED)


@AGGS
def test_the_mean_is_over_tokens_or_over_sequences(agg):
    x = np.random.default_rng(0).normal(size=SHOWN.shape).astype(np.float32)
    found = mean_over_rows(numpy_ops, x, {Columns.LOSS_MASK: agg_mask(SHOWN, agg)})
    assert found == pytest.approx(EXPECTED[agg](x.astype(np.float64)), abs=1e-6)


@AGGS
def test_a_sequence_that_nothing_shows_counts_nothing(agg):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    shown = np.array([[True, True, False], [False] * 3])
    assert mean_over_rows(numpy_ops, x, {Columns.LOSS_MASK: agg_mask(shown, agg)}) == 0.5
    assert mean_over_rows(numpy_ops, x, {Columns.LOSS_MASK: agg_mask(~shown & shown, agg)}) == 0.0


class Tokens(ValueLearner):
    """Its loss is the mean of what `agg_mask` says."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        error = losses.value_loss(self.ops, fwd_out[Columns.VF_PREDS], batch[Columns.VALUE_TARGETS])
        self.register_metric(module_id, "error", mean_over_rows(self.ops, error, batch))
        return mean_over_rows(self.ops, error, batch)


def tokens(agg, *, flat=False):
    """Sequences of unequal lengths, or their steps as rows."""
    made = np.random.default_rng(1)
    columns = {
        Columns.OBS: made.normal(size=(*SHOWN.shape, *OBSERVATIONS.shape)).astype(np.float32),
        Columns.ACTIONS: made.integers(0, TWO_ACTIONS.n, SHOWN.shape),
        Columns.VALUE_TARGETS: made.normal(size=SHOWN.shape).astype(np.float32),
        Columns.LOSS_MASK: agg_mask(SHOWN, agg),
    }
    return {name: each[SHOWN] for name, each in columns.items()} if flat else columns


def learner(**settings):
    given = {"optimizer": {"type": "sgd"}, "lr": 0.3, "num_epochs": 1, **settings}
    return value_config(learner_class=Tokens, **given).build_learner()


@AGGS
@pytest.mark.parametrize("flat", [False, True], ids=["sequences", "rows"])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_parts_and_learners_of_unequal_lengths_are_one_batch(agg, flat, accumulate):
    batch, one = tokens(agg, flat=flat), learner()
    before = one.get_weights()
    expected = one.update(batch)[P]
    assert largest_difference(one.get_weights(), before) > 1e-3
    alone = learner(accumulate=accumulate)
    assert alone.update(batch)[P]["error"] == pytest.approx(expected["error"], abs=1e-6)
    assert largest_difference(alone.get_weights(), one.get_weights()) < 1e-6
    two, results = [learner(accumulate=accumulate) for _ in range(2)], []
    take_turns(two, lambda each: results.append(each.update(batch)[P]))
    for each, found in zip(two, results[-2:], strict=True):
        assert largest_difference(each.get_weights(), one.get_weights()) < 1e-6
        assert found["error"] == pytest.approx(expected["error"], abs=1e-6)


@AGGS
@pytest.mark.parametrize("accumulate", [1, 4])
def test_several_calls_of_unequal_lengths_are_one_batch(agg, accumulate):
    batch, one = tokens(agg), learner()
    before, expected = one.get_weights(), one.update(batch)[P]
    assert largest_difference(one.get_weights(), before) > 1e-3

    def train(each):
        for part in (slice(1), slice(1, 6), slice(6, None)):
            each.forward_backward({name: column[part] for name, column in batch.items()})
        return results.append(each.optim_step().result()[P])

    results, alone, two = [], learner(accumulate=accumulate), [learner(accumulate=accumulate) for _ in "12"]
    train(alone)
    take_turns(two, train)
    for each, found in zip((alone, *two), (results[0], *results[-2:]), strict=True):
        assert largest_difference(each.get_weights(), one.get_weights()) < 1e-6
        assert found["error"] == pytest.approx(expected["error"], abs=1e-6)
        assert found["num_module_steps_trained"] == LENGTHS.sum()


def test_the_two_means_train_differently():
    found = []
    for agg in EXPECTED:
        each = learner()
        each.update(tokens(agg))
        found.append(each.get_weights())
    assert largest_difference(*found) > 1e-3
