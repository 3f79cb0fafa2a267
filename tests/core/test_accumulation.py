"""`accumulate=k`: k minibatches, one step with the mean of their gradients."""

from dataclasses import dataclass

import numpy as np
import pytest
from learning import ValueLearner, digest, ppo_batch, ppo_config, value_config, weights, with_modules

from plugrad import DEFAULT_MODULE_ID
from plugrad.batch.sequences import SampleCount
from plugrad.errors import NonFiniteError
from plugrad.learner.update.data_parallel import WEIGHTS, shard
from plugrad.learner.update.minibatches import MinibatchSpec, minibatch_indices
from plugrad.rng_streams import stream

P = DEFAULT_MODULE_ID


def updated(config, rows=32):
    learner = config.build_learner()
    return learner, learner.update(ppo_batch(rows))


@pytest.mark.parametrize("clip", [None, 0.05])
def test_the_numbers_are_those_of_the_wider_minibatch(clip):
    settings = {"lr": 0.05, "num_epochs": 2, "shuffle_batch_per_epoch": True, "grad_clip": clip}
    parted, found = updated(ppo_config(minibatch_size=4, accumulate=4, **settings))
    whole, expected = updated(ppo_config(minibatch_size=16, **settings))
    np.testing.assert_allclose(weights(parted), weights(whole), rtol=0, atol=1e-6)
    assert found[P].keys() == expected[P].keys()
    for name, value in expected[P].items():
        assert found[P][name] == pytest.approx(value, abs=1e-5), name


def test_the_whole_batch_is_cut_when_no_size_is_given():
    parted, _ = updated(ppo_config(accumulate=4, num_epochs=2))
    whole, _ = updated(ppo_config(num_epochs=2))
    np.testing.assert_allclose(weights(parted), weights(whole), rtol=0, atol=1e-6)


def test_the_number_of_minibatches_is_rounded_up():
    sizes: list[int] = []

    class Looking(ValueLearner):
        def compute_losses(self, *, fwd_out, batch):
            sizes.append(len(batch[P]["obs"]))
            return super().compute_losses(fwd_out=fwd_out, batch=batch)

        def apply_gradients(self, gradients_dict):
            sizes.append(0)
            super().apply_gradients(gradients_dict)

    config = value_config(learner_class=Looking, minibatch_size=10, accumulate=2)
    updated(config, rows=30)
    seen = "".join("step " if size == 0 else "." for size in sizes)
    assert set(sizes) == {0, 10}
    assert seen.count("step ") == 2


def test_a_module_of_fewer_rows_and_one_beside_it():
    def learner(**settings):
        built = with_modules(value_config(lr=0.1, **settings), "a", "b").build_learner()
        built.update({"a": ppo_batch(32), "b": ppo_batch(8, seed=1)})
        return built

    parted, whole = learner(minibatch_size=4, accumulate=2), learner(minibatch_size=8)
    for module_id in "ab":
        np.testing.assert_allclose(weights(parted, module_id), weights(whole, module_id), rtol=0, atol=1e-6)


def spoiled():
    batch = ppo_batch(32)
    batch["value_targets"][5] = np.nan  # in the second minibatch of 4, so in the first step of 2 * 4
    return batch


def test_a_step_with_a_part_that_is_not_finite_is_undone_or_left_out():
    raising = value_config(minibatch_size=4, accumulate=2).build_learner()
    before = digest(raising.get_state())
    with pytest.raises(NonFiniteError, match="the update was undone"):
        raising.update(spoiled())
    assert digest(raising.get_state()) == before

    skipping = value_config(minibatch_size=4, accumulate=2, nonfinite="skip").build_learner()
    without = value_config(minibatch_size=4, accumulate=2, nonfinite="skip").build_learner()
    skipping.update(spoiled())
    without.update({name: column[8:] for name, column in ppo_batch(32).items()})
    np.testing.assert_array_equal(weights(skipping), weights(without))


def test_gradients_that_a_subclass_makes_a_dict_of_count_too():
    class Plain(ValueLearner):
        def compute_gradients(self, loss_per_module, **kwargs):
            return dict(super().compute_gradients(loss_per_module, **kwargs))

    settings = {"lr": 0.05, "minibatch_size": 4, "accumulate": 2}
    plain, _ = updated(value_config(learner_class=Plain, **settings))
    flat, _ = updated(value_config(**settings))
    np.testing.assert_array_equal(weights(plain), weights(flat))


@dataclass(frozen=True)
class Seat:
    """Which of how many learners."""

    rank: int
    size: int


@pytest.mark.parametrize(("size", "learners"), [(8, 2), (6, 4), (2, 3)])
def test_learners_of_a_group_share_each_of_the_minibatches(size, learners):
    columns = {P: {"obs": np.arange(48)}}
    order = minibatch_indices({P: SampleCount(48, 48)}, MinibatchSpec(size, accumulate=3), {P: stream(0)})
    shares = [shard(Seat(rank, learners), columns, order, 3) for rank in range(learners)]
    weights = np.stack([carried[WEIGHTS][P] for carried, _ in shares])
    np.testing.assert_allclose(weights.sum(0), 1.0)
    for part in range(3):
        rows = [own[P][:, part::3] for (_, own), weight in zip(shares, weights, strict=True) if weight.any()]
        np.testing.assert_array_equal(np.concatenate(rows, 1), order[P][:, part::3])
    assert all(len(own[P][0, part::3]) for _, own in shares for part in range(3)), "no mean over no rows"
