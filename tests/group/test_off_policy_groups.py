"""Two learners are one for off-policy algorithms: noise, target networks per gradient step, delayed optimizers."""

import numpy as np
import pytest
from delayed_learning import delayed_batch, delayed_config
from learning import largest_difference

from plugrad.learner.snapshot import digest as digest_of

pytestmark = pytest.mark.usefixtures("cluster")

PARTS = ["rl_module", "targets", "optimizer"]


@pytest.mark.parametrize("mode", ["auto", pytest.param("complete_update", marks=pytest.mark.long)])
def test_two_learners_are_one_after_50_updates(backend: str, mode: str) -> None:
    """With rows that two learners cannot share evenly, several epochs, and minibatches in a new order each time."""
    settings = {"num_epochs": 2, "shuffle_batch_per_epoch": True, "policy_delay": 3, "minibatch_size": 9}
    config = delayed_config(backend, compile=mode, **settings)
    one = config.build_learner()
    remote = config.learners(num_learners=2, num_cpus_per_learner=0.1, timeout_s=60)
    group = remote.build_learner_group()
    try:
        for n in range(50):
            batch = delayed_batch(20, seed=n)
            expected = one.update(batch)
            for found in group.update(batch):
                np.testing.assert_allclose(
                    found["default_policy"]["total_loss"], expected["default_policy"]["total_loss"], rtol=1e-5
                )
        assert len(set(group.foreach_learner(digest_of))) == 1
        state = group.get_state()["learner"]
        assert largest_difference({name: state[name] for name in PARTS}, one.get_state(PARTS)) < 1e-5
        assert state["streams"] == one.get_state()["streams"]
    finally:
        group.shutdown()
