"""Batches in RLlib's classes: `env_steps` is a method there, and modules stand in `policy_batches`."""

import pickle

import numpy as np
import pytest
from learning import ppo_batch, ppo_config, value_config, weights

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Columns, MultiAgentBatch
from plugrad.errors import BatchError

P = DEFAULT_MODULE_ID


class OwnSampleBatch(dict):
    """The face of RLlib's SampleBatch where RLlib is not installed."""

    def env_steps(self):
        return len(next(iter(self.values())))


class OwnMultiAgentBatch:
    """The face of RLlib's MultiAgentBatch where RLlib is not installed."""

    def __init__(self, policy_batches, env_steps):
        self.policy_batches, self.count = policy_batches, env_steps

    def env_steps(self):
        return self.count


def classes():
    try:
        from ray.rllib.policy.sample_batch import MultiAgentBatch as RLlibs
        from ray.rllib.policy.sample_batch import SampleBatch
    except ImportError:
        return OwnSampleBatch, OwnMultiAgentBatch
    return SampleBatch, RLlibs


def trained_on(batch):
    learner = value_config(minibatch_size=4).build_learner()
    return weights(learner), learner.update(batch), weights(learner)


def test_a_sample_batch_is_a_batch():
    sample_batch, _ = classes()
    columns = ppo_batch(16)
    before, results, found = trained_on(sample_batch(columns))
    assert results[ALL_MODULES]["num_env_steps_trained"] == 16
    assert not np.array_equal(found, before)
    np.testing.assert_array_equal(found, trained_on(columns)[2])


def test_plugrads_older_sample_batch_is_a_batch():
    from plugrad import SampleBatch

    with pytest.warns(DeprecationWarning, match="SampleBatch"):
        batch = SampleBatch(ppo_batch(16))
    assert batch.env_steps() == 16
    assert trained_on(batch)[1][ALL_MODULES]["num_env_steps_trained"] == 16


def test_a_multi_agent_batch_of_rllib_is_a_batch_and_counts_its_steps():
    sample_batch, multi_agent_batch = classes()
    columns = ppo_batch(16)
    _, results, found = trained_on(multi_agent_batch({P: sample_batch(columns)}, 11))
    assert results[ALL_MODULES]["num_env_steps_trained"] == 11
    np.testing.assert_array_equal(found, trained_on(columns)[2])


def test_env_steps_of_a_multi_agent_batch_is_a_number_and_can_be_called_as_in_rllib():
    batch = pickle.loads(pickle.dumps(MultiAgentBatch({P: ppo_batch(4)}, 3)))
    assert batch.env_steps == batch.env_steps() == batch.count == 3
    assert batch == MultiAgentBatch(batch.policy_batches, 3)


def test_steps_that_are_no_number_are_an_error_before_anything_is_trained():
    learner = value_config().build_learner()
    before = weights(learner)
    with pytest.raises(BatchError, match="env_steps of a OwnMultiAgentBatch: expected a whole number"):
        learner.update(OwnMultiAgentBatch({P: ppo_batch(4)}, -1))
    np.testing.assert_array_equal(weights(learner), before)


def test_a_batch_of_which_everything_is_hidden_says_so():
    learner = ppo_config().build_learner()
    hidden = {**ppo_batch(8), Columns.LOSS_MASK: np.zeros(8, bool)}
    with pytest.raises(BatchError, match=r"nothing to train: loss_mask hides every row of default_policy$"):
        learner.update(hidden)
