"""`accumulate=k` in every mode of every backend: the numbers of the minibatch that is k times as wide."""

import numpy as np
import pytest
from learning import ppo_batch, value_config, weights

from plugrad import DEFAULT_MODULE_ID

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID
SETTINGS = {"lr": 0.01, "num_epochs": 2, "shuffle_batch_per_epoch": True, "grad_clip": 0.5}


def updated(backend, mode, **settings):
    config = value_config(backend, **SETTINGS, **settings).framework(backend, compile=mode)
    learner = config.build_learner()
    return learner, learner.update(ppo_batch(64))[P]


@pytest.fixture(scope="module")
def whole(backend):
    return updated(backend, "none", minibatch_size=16)


@pytest.mark.parametrize("mode", ["none", "forward_train", "complete_update"])
def test_two_of_eight_rows_are_one_of_sixteen(backend, mode, whole):
    learner, results = updated(backend, mode, minibatch_size=8, accumulate=2)
    assert learner.update_mode.startswith(mode), learner.update_mode
    np.testing.assert_allclose(weights(learner), weights(whole[0]), rtol=0, atol=1e-6)
    for name, value in whole[1].items():
        assert results[name] == pytest.approx(value, abs=2e-6), name
