"""Noise columns: which numbers they hold, and that they are part of everything that a learner remembers."""

import numpy as np
import pytest
from delayed_learning import ByHand, DelayedLearner, delayed_batch, delayed_config, delayed_learner
from learning import digest, with_modules

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec
from plugrad.errors import BatchError, ConfigError
from plugrad.rng_streams import stream

P = DEFAULT_MODULE_ID


class Listening(DelayedLearner):
    """Keeps the noise that its loss reads, once per gradient step."""

    def compute_losses(self, *, fwd_out, batch):
        heard = self.__dict__.setdefault("heard", {})
        for module_id, rows in batch.items():
            noise = rows["actor_noise"].copy(), rows["critic_noise"].copy()
            heard.setdefault(module_id, {}).setdefault(noise[0].tobytes(), noise)
        return super().compute_losses(fwd_out=fwd_out, batch=batch)


def heard(learner, module_id=P):
    return list(learner.heard[module_id].values())


def test_each_row_of_each_minibatch_has_its_own_standard_normals():
    learner = delayed_learner(learner_class=Listening)
    learner.update(delayed_batch(16), num_epochs=3)
    assert [each[0].shape for each in heard(learner)] == [(8, 2)] * 6
    assert [each[1].shape for each in heard(learner)] == [(8,)] * 6
    drawn = np.concatenate([each.ravel() for pair in heard(learner) for each in pair])
    assert len(np.unique(drawn)) == 6 * 8 * 3
    many = delayed_learner(learner_class=Listening, minibatch_size=None)
    many.update(delayed_batch(4096))
    for each in heard(many)[0]:
        assert abs(each.mean()) < 0.05
        assert each.std() == pytest.approx(1.0, abs=0.03)


def test_they_come_from_the_stream_of_the_module_and_the_seed():
    learner = delayed_learner(learner_class=Listening, seed=5)
    learner.update(delayed_batch(16))
    drawn = stream(5, P, "noise").standard_normal((2, 24), np.float32)
    for step, (actor, critic) in enumerate(heard(learner)):
        np.testing.assert_array_equal(actor.ravel(), drawn[step, :16])
        np.testing.assert_array_equal(critic, drawn[step, 16:])


def test_several_steps_in_one_update_are_as_many_updates_of_one_step():
    one, other = delayed_learner(policy_delay=3), delayed_learner(policy_delay=3)
    batch = delayed_batch(8)
    one.update(batch, num_total_minibatches=7)
    for _ in range(7):
        other.update(batch, num_total_minibatches=1)
    parts = ["rl_module", "optimizer", "targets", "streams"]
    assert digest(one.get_state(parts)) == digest(other.get_state(parts))


def test_rows_that_are_hidden_get_none():
    learner, batch = delayed_learner(minibatch_size=8), delayed_batch(24)
    by_hand, shown = ByHand(learner), np.arange(24) % 3 != 1
    learner.update({**batch, Columns.LOSS_MASK: shown}, num_total_minibatches=5)
    by_hand.update({name: values[shown] for name, values in batch.items()}, 5)
    by_hand.assert_equals(learner)


def test_sequences_get_noise_for_each_of_their_steps():
    learner = delayed_learner(learner_class=Listening, minibatch_size=12)
    batch = {name: values.reshape(6, 4, *values.shape[1:]) for name, values in delayed_batch(24).items()}
    learner.update({**batch, Columns.LOSS_MASK: np.ones((6, 4), bool)})
    assert [(a.shape, b.shape) for a, b in heard(learner)] == [((3, 4, 2), (3, 4))] * 2


def test_a_failed_update_takes_the_draw_and_the_counts_back():
    class Failing(DelayedLearner):
        fails = False

        def after_gradient_based_update(self, *, timesteps):
            if self.fails:
                raise RuntimeError("after the steps")

    learner, other = (delayed_learner(learner_class=Failing, policy_delay=3) for _ in range(2))
    for each in (learner, other):
        each.update(delayed_batch(), num_total_minibatches=4)
    before = digest(learner.get_state())
    learner.fails = True
    with pytest.raises(RuntimeError, match="after the steps"):
        learner.update(delayed_batch(seed=1), num_total_minibatches=4)
    assert digest(learner.get_state()) == before
    learner.fails = False
    for each in (learner, other):
        each.update(delayed_batch(seed=2), num_total_minibatches=4)
    assert digest(learner.get_state()) == digest(other.get_state())


def test_modules_have_their_own_and_take_it_with_them():
    learner = with_modules(delayed_config(learner_class=Listening), "a").build_learner()
    learner.add_module(module_id="b", module_spec=RLModuleSpec())
    assert list(learner.noise_columns) == ["a", "b"]
    learner.update({"a": delayed_batch(16), "b": delayed_batch(8)})
    assert set(learner.heard["a"]).isdisjoint(learner.heard["b"])
    learner.remove_module("a")
    assert list(learner.noise_columns) == ["b"]
    assert "a/noise" not in learner.get_state()["streams"]["generators"]
    learner.update({"b": delayed_batch(8)})


def test_only_the_steps_of_a_module_count_for_its_delays():
    """`b` has rows in the first update only: it is as a learner that had no other."""
    learner = with_modules(delayed_config(policy_delay=3), "a", "b").build_learner()
    both = {"a": delayed_batch(), "b": delayed_batch(seed=1)}
    learner.update(both, num_total_minibatches=4)
    before = learner.get_state()
    learner.update({"a": delayed_batch()}, num_total_minibatches=4)
    after = learner.get_state()
    for component in ("optimizer", "targets", "rl_module"):
        for name in before[component]:
            same = digest({"": before[component][name]}) == digest({"": after[component][name]})
            assert same == name.startswith("b"), (component, name)


def test_a_module_that_cannot_say_its_noise_is_refused():
    class Wrong(DelayedLearner):
        def get_noise_columns(self, module_id, config=None):
            return {"noise": 2} if module_id == "b" else {}

    config = with_modules(delayed_config(learner_class=Wrong), "b")
    with pytest.raises(
        ConfigError, match=r"module 'b': expected \{column: shape per row\}.*found \{'noise': 2\}"
    ):
        config.build_learner()


def test_a_batch_may_not_bring_a_noise_column():
    learner = delayed_learner()
    before = digest(learner.get_state())
    with pytest.raises(BatchError, match="'critic_noise' is a noise column") as raised:
        learner.update({**delayed_batch(16), "critic_noise": np.zeros(16, np.float32)})
    assert raised.value.facts["column"] == "critic_noise"
    assert digest(learner.get_state()) == before


def test_parity_adds_them_too():
    from plugrad.cli.parity import compare

    config = delayed_config()
    found = compare(config, ("numpy", "numpy"), {P: delayed_batch()}, num_steps=3, tolerance=0.0)
    assert found.equal
