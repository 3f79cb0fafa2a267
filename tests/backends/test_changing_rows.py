"""Batches whose length or order of columns changes from update to update: what is compiled, and what it computes."""

import logging

import numpy as np
from learning import ppo_batch, ppo_config, weights
from test_module_modes import built as built_module
from test_module_modes import own_module

from plugrad import DEFAULT_MODULE_ID, hookimpl
from plugrad.hooks.backend_helpers import MOST_WIDTHS

COMPILING = "compiling the update for"


class ReportsRows:
    """Reports the rows that the losses get."""

    @hookimpl(wrapper=True)
    def compute_losses(self, learner, batch):
        losses = yield
        for module_id, rows in batch.items():
            ones = learner.ops.ones_like(rows["advantages"])
            learner.register_metric(module_id, "rows", learner.ops.sum(ones))
        return losses


class CountsTraces:
    """Counts how often Python computes the losses."""

    def __init__(self):
        self.calls = 0

    @hookimpl(wrapper=True)
    def compute_losses(self, learner, batch):
        losses = yield
        self.calls += 1
        return losses


def built(backend, mode, *plugins, **training):
    config = ppo_config(backend, **training).framework(backend, compile=mode)
    learner = config.get_learner_class()(config=config, plugins=[*plugins])
    learner.build()
    return learner


def test_another_order_of_columns_compiles_nothing_and_changes_no_bit(backend):
    counter = CountsTraces()
    learner, other = (
        built(backend, "complete_update", each, minibatch_size=8) for each in (counter, CountsTraces())
    )
    learner.update(ppo_batch(16))
    other.update(ppo_batch(16))
    traced = counter.calls
    for n in range(1, 4):
        batch = ppo_batch(16, seed=n)
        names = [*batch]
        learner.update({name: batch[name] for name in names[n:] + names[:n]})
        other.update(batch)
    assert learner.update_mode.startswith("complete_update")
    assert counter.calls == traced
    assert weights(learner).tobytes() == weights(other).tobytes()


def test_whole_batches_of_changing_length_compile_few_sizes_and_give_the_numbers_of_none(
    backend, caplog, monkeypatch
):
    most = MOST_WIDTHS
    if backend == "torch":  # inductor takes 20 s for each
        most = 2
        monkeypatch.setattr("plugrad_torch.program.MOST_WIDTHS", most)
    learner = built(backend, "complete_update", ReportsRows(), minibatch_size=None, num_epochs=1)
    eager = built(backend, "none", ReportsRows(), minibatch_size=None, num_epochs=1)
    lengths = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    with caplog.at_level(logging.INFO, "plugrad"):
        for n in lengths:
            found = learner.update(ppo_batch(n, seed=n))["default_policy"]
            assert found["rows"] == n  # a row of padding would count
    assert "the size of the minibatches keeps changing" in learner.update_mode
    compiled = sum(COMPILING in each.message for each in caplog.records)
    assert compiled <= (len(lengths) if backend == "jax" else most)
    eager.set_state(learner.get_state())
    for n in (5, 20, 1):
        learner.update(ppo_batch(n, seed=n))
        eager.update(ppo_batch(n, seed=n))
    np.testing.assert_allclose(weights(learner), weights(eager), rtol=0, atol=1e-6)


def test_jax_keeps_the_programs_of_the_last_sizes_alone():
    import needs

    needs.backend("jax")
    learner = built("jax", "complete_update", minibatch_size=None, num_epochs=1)
    for n in range(2, 2 + MOST_WIDTHS + 2):
        learner.update(ppo_batch(n))
    (prepared,) = learner._update_run.programs._made.values()
    assert [*prepared.program._of_widths] == [(n,) for n in range(4, 4 + MOST_WIDTHS)]


def test_no_row_of_padding_reaches_the_statistics_of_a_batch_norm(backend):
    mode = "auto" if backend == "torch" else "complete_update"
    cls = own_module(backend)
    learners = []
    for compiled in (mode, "none"):
        config = ppo_config(backend, minibatch_size=None).framework(backend, compile=compiled)
        learner = config.get_learner_class()(config=config, module=built_module(backend, cls))
        learner.build()
        learners.append(learner)
    learner, eager = learners
    for n in (5, 7):
        eager.set_state(learner.get_state())
        learner.update(ppo_batch(n, seed=n))
        eager.update(ppo_batch(n, seed=n))
        found, expected = (statistics(each) for each in (learner, eager))
        assert found.keys() == expected.keys()
        assert found
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=name)


def statistics(learner):
    """The running means and variances of the module."""
    state = learner.module[DEFAULT_MODULE_ID].get_state()
    return {name: value for name, value in state.items() if "mean" in name or "var" in name}
