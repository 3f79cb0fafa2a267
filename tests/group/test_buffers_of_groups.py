"""Learners of a group have equal buffers after each update: floats by their mean over rows, all else learner 0's."""

from typing import Any

import numpy as np
import pytest
from learning import ppo_batch, ppo_config
from statistics_models import CLASSES, normed, statistics
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, RLModuleSpec
from plugrad.errors import CollectiveError, NonFiniteError
from plugrad.learner.state.state import digest as digest_of
from plugrad_ppo import PPOLearner

P = DEFAULT_MODULE_ID
OBS = ppo_batch(8, seed=7)[Columns.OBS]


def bad_batch():
    """Finite, and its loss is not."""
    return {**ppo_batch(30), Columns.ACTION_LOGP: np.full(30, -1e30, np.float32)}


def outputs(learner: Learner) -> Any:
    return learner.compute_actions(OBS, explore=False)[Columns.ACTION_DIST_INPUTS]


@pytest.mark.cross_product
@pytest.mark.parametrize(
    "mode", ["none", pytest.param("forward_train", marks=pytest.mark.long), "complete_update"]
)
def test_learners_equal_each_other_bit_for_bit_in_every_mode(cluster, backend, mode, tmp_path):
    """Fifteen rows for two learners: within an update their shares, masks and statistics differ."""
    config = ppo_config(backend, lr=0.01, minibatch_size=15).framework(backend, compile=mode, device="cpu")
    config = config.rl_module(rl_module_spec=RLModuleSpec(module_class=CLASSES[backend]))
    config = config.learners(num_learners=2, num_cpus_per_learner=0.1, build_timeout_s=200)
    group = config.build_learner_group()
    try:
        assert len(set(group.foreach_learner(digest_of))) == 1
        for n in range(2):
            group.update(ppo_batch(30, seed=n))
            assert len(set(group.foreach_learner(digest_of))) == 1
        assert {each.split(":")[0] for each in group.foreach_learner(lambda one: one.update_mode)} == {mode}
        first, second = group.foreach_learner(outputs)
        np.testing.assert_array_equal(first, second)

        before = group.foreach_learner(digest_of)
        with pytest.raises(NonFiniteError):
            group.update(bad_batch())
        assert group.foreach_learner(digest_of) == before
        np.testing.assert_array_equal(group.foreach_learner(outputs), [first, first])

        group.save_to_path(tmp_path)
        again = config.learners(num_learners=0).build_learner_group()
        again.restore_from_path(tmp_path)
        np.testing.assert_allclose(again.foreach_learner(outputs)[0], first, rtol=0, atol=1e-6)
    finally:
        group.shutdown()


# --- in threads ---


def learner_of(dropout=0.5, model=None, cls=PPOLearner, **training):
    config = ppo_config("torch", **{"lr": 0.01, **training}).framework("torch", compile="none", device="cpu")
    learner = cls(config=config, module=normed("torch", dropout=dropout) if model is None else model)
    learner.build()
    return learner


def update_all(learners, batch):
    for found in on_all(learners, lambda learner: learner.update(batch)):
        assert isinstance(found, dict), found


def test_statistics_are_the_mean_over_rows():
    """One step of 7 rows for 2 learners, 3 and 4 of them, against each share alone."""
    batch = ppo_batch(7)
    learners, alone = ([learner_of(dropout=0.0) for _ in range(2)] for _ in range(2))
    update_all(learners, batch)
    for one, share in zip(alone, (slice(0, 3), slice(3, 7)), strict=True):
        one.update({name: values[share] for name, values in batch.items()})
    for name, found in statistics(learners[0]).items():
        first, second = (statistics(each)[name] for each in alone)
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, (3 * first + 4 * second) / 7, rtol=0, atol=1e-6)
        else:
            assert found == first


def test_a_learner_without_rows_says_nothing_of_statistics():
    """One row for two learners: learner 0 has none, and computes with that of the other."""
    import torch

    class Means(torch.nn.Module):
        """Keeps the largest observation that it was trained on, and whether it was."""

        def __init__(self):
            super().__init__()
            self.register_buffer("largest", torch.zeros(()))
            self.register_buffer("seen", torch.zeros((), dtype=torch.bool))
            self.head = torch.nn.Linear(3, 3)

        def forward(self, obs):
            if self.training:
                self.largest = obs.max()
                self.seen |= True
            outputs = self.head(obs)
            return outputs[:, :2], outputs[:, 2:]

    batch = ppo_batch(1)
    learners = [learner_of(model=Means()) for _ in range(2)]
    for one in learners:
        one.set_weights(learners[0].get_weights())
    update_all(learners, batch)
    for one in learners:
        found = one.get_weights()[P]
        assert found["model.largest"] == batch[Columns.OBS].max()
        assert found["model.seen"].dtype == bool
        assert found["model.seen"]


def test_an_error_on_one_learner_undoes_the_statistics_of_all():
    class Late(PPOLearner):
        def after_gradient_based_update(self, *, timesteps):
            super().after_gradient_based_update(timesteps=timesteps)
            if self.collective.rank == 1:
                raise KeyError("late")

    learners = [learner_of(cls=Late) for _ in range(2)]
    before = digest_of(learners[0])
    found = on_all(learners, lambda learner: learner.update(ppo_batch(30)))
    assert [type(each) for each in found] == [CollectiveError, KeyError]
    assert {digest_of(each) for each in learners} == {before}


def test_a_learner_takes_over_the_state_of_another_with_its_statistics(backend):
    config = ppo_config(backend, lr=0.01).framework(backend, compile="none", device="cpu")
    one, other = (PPOLearner(config=config, module=normed(backend)) for _ in range(2))
    for each in (one, other):
        each.build()
    one.update(ppo_batch(30))
    assert digest_of(other) != digest_of(one)
    other.set_state(one.get_state())
    assert digest_of(other) == digest_of(one)
    np.testing.assert_array_equal(outputs(other), outputs(one))
