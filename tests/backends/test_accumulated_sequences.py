"""Steps of several minibatches where `loss_mask` hides rows, as in sequences: always the mean over the rows.

Each is compared with one learner that takes the whole batch at once, after one step of gradient descent.
"""

import numpy as np
import pytest
from learning import flat, largest_difference, ppo_batch, ppo_config, quick_mode

from plugrad import Columns, MultiRLModuleSpec, RLModuleSpec

pytestmark = pytest.mark.cross_product

STEPS = 3
"""Of a sequence: a program holds each step of each layer."""
RECURRENT = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": STEPS, "vf_share_layers": True}
LSTM = RLModuleSpec(model_config={"fcnet_hiddens": [4], **RECURRENT})
ROWS = RLModuleSpec(model_config={"fcnet_hiddens": [4]})
MODULES = MultiRLModuleSpec(rl_module_specs={"lstm": LSTM, "rows": ROWS, "masked": ROWS})


def config(backend, **training):
    settings = {"optimizer": {"type": "sgd"}, "lr": 0.05, "use_kl_loss": True, **training}
    return (
        ppo_config(backend, **settings)
        .framework(backend, compile=quick_mode(backend))
        .rl_module(rl_module_spec=MODULES)
    )


def sequences(count, seed, *, length=STEPS, states=("h", "c"), cells=4):
    """Columns [count, length, ...] of random lengths, which begin in random states."""
    rng = np.random.default_rng(seed)
    rows = ppo_batch(length * count, seed=seed).items()
    values = rng.normal(size=(len(states), count, cells)).astype(np.float32)
    return {
        **{name: values.reshape(count, length, *values.shape[1:]) for name, values in rows},
        Columns.STATE_IN: dict(zip(states, values, strict=True)),
        Columns.SEQ_LENS: rng.integers(1, length + 1, count),
    }


def batch(seed=0):
    shown = np.random.default_rng(seed).random(24) < 0.4
    return {
        "lstm": sequences(12, seed),
        "rows": ppo_batch(36, seed=seed + 1),
        "masked": {**ppo_batch(24, seed=seed + 2), Columns.LOSS_MASK: shown},
    }


def assert_same(learner, found, one, expected):
    assert largest_difference(learner.get_weights(), one.get_weights()) < 1e-6
    found, expected = flat(found), flat(expected)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if "time/" not in name:
            np.testing.assert_allclose(found[name], value, rtol=2e-6, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def whole(backend):
    one = config(backend).build_learner()
    before = one.get_weights()
    expected = one.update(batch())
    assert largest_difference(one.get_weights(), before) > 1e-3, "the comparison means something"
    return one, expected


@pytest.mark.parametrize("accumulate", [2, 4])
def test_parts_are_the_whole_batch(backend, accumulate, whole):
    learner = config(backend, accumulate=accumulate).build_learner()
    assert_same(learner, learner.update(batch()), *whole)


def test_the_parts_of_a_step_are_weighted_by_its_own_rows_in_each_of_six_steps(backend):
    """A step in which few rows count weighs as much as another one."""
    given = {"lstm": sequences(24, seed=3)}
    # Minibatches of 8 sequences: of one row each, of three, and of both. They have 2 rows on average.
    given["lstm"][Columns.SEQ_LENS] = np.array([1] * 8 + [3] * 8 + [1, 1, 3, 1, 3, 3, 1, 3])
    one = config(backend, minibatch_size=16, num_epochs=2).build_learner()
    parted = config(backend, minibatch_size=8, accumulate=2, num_epochs=2).build_learner()
    expected, found = one.update(given), parted.update(given)
    for learner in (one, parted):
        assert learner.counters["num_gradient_steps_lifetime/__all_modules__"] == 6
    assert_same(parted, found, one, expected)


def test_a_module_of_fewer_rows_than_parts_counts_each_row_once(backend):
    given = {**batch(), "rows": ppo_batch(3)}
    one, parted = (config(backend, accumulate=number).build_learner() for number in (1, 4))
    assert_same(parted, parted.update(given), one, one.update(given))


SMALL = {
    "fcnet_hiddens": [2],
    "use_lstm": True,
    "lstm_cell_size": 2,
    "max_seq_len": 2,
    "vf_share_layers": True,
}


def assert_compiled_equals_whole(backend, spec, given, accumulate, mode="complete_update"):
    """A step of several parts in a compiled program is that of one learner on the whole batch."""
    spec = MultiRLModuleSpec(rl_module_specs={"p": spec})
    one = config(backend).framework(backend, compile="none").rl_module(rl_module_spec=spec).build_learner()
    compiled = config(backend, accumulate=accumulate).framework(backend, compile=mode)
    parted = compiled.rl_module(rl_module_spec=spec).build_learner()
    found = parted.update({"p": given})
    assert parted.update_mode.startswith(mode), parted.update_mode
    assert_same(parted, found, one, one.update({"p": given}))


@pytest.mark.parametrize("accumulate", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_compiled_step_of_several_parts_is_the_whole_batch(backend, accumulate):
    given = sequences(7, seed=0)
    del given[Columns.STATE_IN]  # sequences of a module without a state compile in a tenth of the time
    assert_compiled_equals_whole(backend, ROWS, given, accumulate)


@pytest.mark.long
@pytest.mark.parametrize("accumulate", [2, 4])
def test_a_compiled_step_of_an_lstm_in_several_parts_is_the_whole_batch(backend, accumulate):
    given = sequences(7, seed=0, length=2, cells=2)
    assert_compiled_equals_whole(backend, RLModuleSpec(model_config=SMALL), given, accumulate)


def test_a_step_of_several_parts_with_compiled_forward_passes_is_the_whole_batch(backend):
    given = {**ppo_batch(24), Columns.LOSS_MASK: np.arange(24) % 5 < 2}
    assert_compiled_equals_whole(backend, ROWS, given, 2, "forward_train")
