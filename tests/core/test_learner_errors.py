"""What cannot be trained on changes nothing: errors by name, the state byte-equal before and after."""

import numpy as np
import pytest
from learning import ValueLearner, digest, ppo_batch, ppo_config, value_config, weights, with_modules

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Columns, Learner, PlugradError, hookimpl
from plugrad.errors import (
    BatchError,
    ConfigError,
    MissingColumnError,
    NonFiniteBatchError,
    NonFiniteError,
    UnknownModuleError,
)
from plugrad.learner.update.checks import MAX_SKIPPED_UPDATES

P = DEFAULT_MODULE_ID


def changed(**columns):
    return {**ppo_batch(), **columns}


def without(column):
    return {name: values for name, values in ppo_batch().items() if name != column}


BAD_BATCHES = {
    "unknown module": ({"default_polcy": ppo_batch()}, UnknownModuleError, "Did you mean 'default_policy'"),
    "no mapping": ([1, 2], BatchError, "found list"),
    "mixed": ({P: ppo_batch(), Columns.OBS: np.ones((2, 3))}, BatchError, "mixes columns and modules"),
    "no modules": ({}, BatchError, "no rows"),
    "no rows": ({P: {name: values[:0] for name, values in ppo_batch().items()}}, BatchError, "no rows"),
    "no observations": (without(Columns.OBS), MissingColumnError, "'obs'"),
    "no loss column": (without(Columns.ADVANTAGES), MissingColumnError, "'advantages'"),
    "lengths": (changed(advantages=np.ones(15)), BatchError, "'advantages'.*16 rows.*15 rows"),
    "texts": (changed(advantages=np.array(["a"] * 16)), BatchError, "'advantages'.*numbers.*dtype"),
    "objects": (changed(obs=np.array([{}] * 16)), BatchError, "'obs'.*numbers.*dtype object"),
    "scalar": (changed(advantages=np.float32(1.0)), BatchError, "'advantages'.*leading dimension"),
    "width": (changed(obs=np.ones((16, 4))), BatchError, r"'obs'.*\[B, 3\].*\[16, 4\]"),
    "rank": (changed(actions=np.ones((16, 1, 1), int)), BatchError, "'actions'"),
    "action too high": (changed(actions=np.full(16, 2)), BatchError, "'actions'.*from 2 to 2"),
    "action below 0": (changed(actions=np.full(16, -1)), BatchError, "'actions'.*from -1"),
    "float actions": (changed(actions=np.ones(16)), BatchError, "'actions'.*integers.*float64"),
    "broadcast": (changed(action_logp=np.ones((16, 1))), BatchError, r"'action_logp'.*\[8\].*\[8, 1\]"),
    "broadcast mask": (changed(loss_mask=np.ones((16, 1))), BatchError, r"'(obs|loss_mask)'"),
    "nan": (
        changed(advantages=np.array([np.nan] * 2 + [0.0] * 14)),
        NonFiniteBatchError,
        "'advantages'.*2 of 16",
    ),
    "inf": (changed(obs=np.full((16, 3), -np.inf)), NonFiniteBatchError, "'obs'.*16 of 16"),
}


@pytest.fixture(scope="module")
def learner():
    built = ppo_config(minibatch_size=8, use_kl_loss=True, shuffle_batch_per_epoch=True).build_learner()
    built.update(ppo_batch())
    return built


@pytest.mark.parametrize("kind", BAD_BATCHES)
def test_a_bad_batch_is_named_and_changes_nothing(learner, kind):
    batch, error, words = BAD_BATCHES[kind]
    before = digest(learner.get_state())
    with pytest.raises(error, match=words):
        learner.update(batch)
    assert digest(learner.get_state()) == before


@pytest.mark.parametrize("kind", ["no loss column", "nan", "lengths"])
def test_the_facts_of_an_error_are_there_for_programs(learner, kind):
    batch, error, _ = BAD_BATCHES[kind]
    with pytest.raises(error) as caught:
        learner.update(batch)
    assert caught.value.facts["module_id"] == P
    assert caught.value.facts["column"] == Columns.ADVANTAGES
    assert "expected" in caught.value.facts
    assert "found" in caught.value.facts


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        ({"num_epochs": 0}, "num_epochs=0"),
        ({"minibatch_size": 0}, "minibatch_size=0"),
        ({"minibatch_size": 17}, "minibatch_size=17 is above the 16 rows"),
    ],
)
def test_a_cut_that_cannot_be_is_refused(learner, cut, words):
    before = digest(learner.get_state())
    with pytest.raises(ValueError, match=words) as caught:
        learner.update(ppo_batch(), **cut)
    assert isinstance(caught.value, ConfigError | BatchError)
    assert digest(learner.get_state()) == before


def test_the_next_good_batch_trains_as_if_nothing_had_happened(learner):
    state = learner.get_state()
    other = ppo_config(minibatch_size=8, use_kl_loss=True, shuffle_batch_per_epoch=True).build_learner()
    other.set_state(state)
    for batch, _, _ in BAD_BATCHES.values():
        with pytest.raises(PlugradError):
            other.update(batch)
    learner.update(ppo_batch())
    other.update(ppo_batch())
    assert digest(other.get_state()) == digest(learner.get_state())


class Saboteur:
    """A listener whose every wrapped hook fails when it is told to, with an error that is not plugrad's."""

    def __init__(self):
        self.fails_in = None

    def _fail(self, hook):
        if hook == self.fails_in:
            raise KeyboardInterrupt(hook)

    @hookimpl(wrapper=True)
    def before_gradient_based_update(self, learner):
        self._fail("before_gradient_based_update")
        return (yield)

    @hookimpl(wrapper=True)
    def compute_losses(self, learner):
        self._fail("compute_losses")
        return (yield)

    @hookimpl(wrapper=True)
    def apply_gradients(self, learner):
        yield
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps > 1:
            self._fail("apply_gradients")

    @hookimpl(wrapper=True)
    def after_gradient_based_update(self, learner):
        yield
        self._fail("after_gradient_based_update")


@pytest.mark.parametrize(
    "hook",
    ["before_gradient_based_update", "compute_losses", "apply_gradients", "after_gradient_based_update"],
)
def test_an_interruption_anywhere_undoes_the_whole_update(hook):
    config = ppo_config(
        minibatch_size=4, use_kl_loss=True, lr=[[0, 0.1], [100, 0.01]], shuffle_batch_per_epoch=True
    )
    saboteur = Saboteur()
    learner = Learner(config=config, plugins=[saboteur])
    learner.build()
    obs, fresh = np.ones((1, 3)), digest(learner.get_state())
    value = learner.compute_values(obs)
    saboteur.fails_in = hook
    with pytest.raises(KeyboardInterrupt, match=hook):
        learner.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 50})
    assert digest(learner.get_state()) == fresh
    assert learner.compute_values(obs) == value
    saboteur.fails_in = None
    assert learner.update(ppo_batch())[P]["weights_seq_no"] == 1


# --- what is not finite ---


class Poisoned(ValueLearner):
    """Its loss divides by a column of the batch: a zero there is a loss that is not finite, in a batch that is."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        error = fwd_out[Columns.VF_PREDS] - batch[Columns.VALUE_TARGETS]
        return self.ops.mean(self.ops.square(error) / batch["divisor"])


def poisoned_batch(*bad_rows, rows=12):
    divisor = np.ones(rows)
    divisor[list(bad_rows)] = 0.0
    return {**ppo_batch(rows), "divisor": divisor}


def test_a_loss_that_is_not_finite_raises_and_undoes_the_minibatches_before_it():
    learner = value_config(learner_class=Poisoned, minibatch_size=4).build_learner()
    learner.update(poisoned_batch())
    before = digest(learner.get_state())
    with pytest.raises(
        NonFiniteError, match=r"of 3 minibatches.*undone.*default_policy/total_loss"
    ) as caught:
        learner.update(poisoned_batch(5))
    assert isinstance(caught.value, FloatingPointError)
    assert digest(learner.get_state()) == before


@pytest.mark.parametrize("clip", ["value", "global_norm"])
def test_a_gradient_that_is_not_finite_is_found_before_a_clip_hides_it(clip):
    class Infinite(ValueLearner):
        def compute_gradients(self, loss_per_module, **kwargs):
            gradients = super().compute_gradients(loss_per_module, **kwargs)
            gradients[next(iter(gradients))] = gradients[next(iter(gradients))] + np.inf
            return gradients

    config = value_config(learner_class=Infinite, grad_clip=0.5, grad_clip_by=clip)
    learner = config.build_learner()
    before = digest(learner.get_state())
    with pytest.raises(NonFiniteError):
        learner.update(ppo_batch())
    assert digest(learner.get_state()) == before


@pytest.mark.parametrize("bad", range(3))
def test_skip_leaves_out_only_the_bad_minibatch_and_counts_it(bad):
    config = value_config(learner_class=Poisoned, minibatch_size=4, nonfinite="skip", lr=0.1)
    learner, clean = config.build_learner(), config.build_learner()
    results = learner.update(poisoned_batch(4 * bad + 1))
    kept = [row for row in range(12) if row // 4 != bad]
    expected = clean.update({column: values[kept] for column, values in poisoned_batch().items()})
    np.testing.assert_array_equal(weights(learner), weights(clean))
    assert digest(learner.get_state(["optimizer"])) == digest(clean.get_state(["optimizer"]))
    assert results[P]["total_loss"] == pytest.approx(expected[P]["total_loss"])
    assert results[ALL_MODULES]["num_nonfinite_minibatches"] == 1
    assert expected[ALL_MODULES]["num_nonfinite_minibatches"] == 0
    again = learner.update(poisoned_batch(0, 4, 8))
    assert again[ALL_MODULES]["num_nonfinite_minibatches"] == 3
    assert again[ALL_MODULES]["num_nonfinite_minibatches_lifetime"] == 4
    np.testing.assert_array_equal(weights(learner), weights(clean))


def test_skip_leaves_out_a_batch_with_nan_in_what_the_loss_reads():
    learner = ppo_config(nonfinite="skip", minibatch_size=8, use_kl_loss=True).build_learner()
    batch = ppo_batch()
    batch[Columns.ADVANTAGES][3] = np.nan
    results = learner.update(batch)
    assert results[ALL_MODULES]["num_nonfinite_minibatches"] == 1
    assert np.isfinite(weights(learner)).all()
    assert np.isfinite(results[P]["mean_kl_loss"])


def test_so_many_updates_in_a_row_without_a_finite_minibatch_are_an_error():
    learner = value_config(learner_class=Poisoned, minibatch_size=4, nonfinite="skip").build_learner()
    none, some = poisoned_batch(0, 4, 8), poisoned_batch(0)
    for _ in range(2):
        for _ in range(MAX_SKIPPED_UPDATES - 1):
            learner.update(none)
        learner.update(some)  # one good minibatch, and the count begins anew
    for _ in range(MAX_SKIPPED_UPDATES - 1):
        results = learner.update(none)
    assert results[ALL_MODULES]["num_nonfinite_minibatches"] == 3
    before = digest(learner.get_state())
    for _ in range(2):
        with pytest.raises(NonFiniteError, match=f"^{MAX_SKIPPED_UPDATES} updates in a row"):
            learner.update(none)
        assert digest(learner.get_state()) == before
    learner.update(poisoned_batch())


def test_what_a_mask_hides_may_hold_anything():
    class Masked(ValueLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            shown = batch["loss_mask"] > 0
            targets = self.ops.where(shown, batch["value_targets"], fwd_out["vf_preds"])
            return self.ops.mean(self.ops.square(fwd_out["vf_preds"] - targets))

    learner = value_config(learner_class=Masked).build_learner()
    batch = {**ppo_batch(), "loss_mask": np.ones(16)}
    batch["value_targets"][5], batch["loss_mask"][5] = np.nan, 0.0
    learner.update(batch)
    assert np.isfinite(weights(learner)).all()


def test_the_logits_of_actions_that_are_not_allowed_may_be_minus_infinity():
    class Reads(ValueLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            batch["action_dist_inputs"]
            return super().compute_loss_for_module(
                module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
            )

    learner = value_config(learner_class=Reads).build_learner()
    batch = ppo_batch()
    batch["action_dist_inputs"][3, 0] = -np.inf
    learner.update(batch)
    batch["action_dist_inputs"][3, 0] = np.nan
    with pytest.raises(NonFiniteBatchError, match="'action_dist_inputs'"):
        learner.update(batch)


@pytest.mark.parametrize(
    "timesteps",
    [
        *({"num_env_steps_sampled_lifetime": each} for each in ("many", np.nan, np.inf)),
        [1],
        "x",
        {"a": None},
        3,
    ],
)
def test_timesteps_that_are_no_numbers_are_refused(learner, timesteps):
    before = digest(learner.get_state())
    with pytest.raises(BatchError, match="timesteps: expected numbers by name"):
        learner.update(ppo_batch(), timesteps=timesteps)
    assert digest(learner.get_state()) == before


def test_a_column_that_nobody_reads_may_hold_anything():
    learner = with_modules(value_config(), "a").build_learner()
    batch = {**ppo_batch(), "remarks": np.full(16, np.nan)}
    assert np.isfinite(learner.update({"a": batch})["a"]["total_loss"])
