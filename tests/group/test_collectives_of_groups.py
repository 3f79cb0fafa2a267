"""Groups that sum by each collective compute what one learner does."""

import os
import signal

import pytest
from groups import Groups, group_config
from learning import largest_difference, ppo_batch

from plugrad import DEFAULT_MODULE_ID


@pytest.mark.cross_product(part=2)
@pytest.mark.parametrize("collective", ["gloo", "ray"])
def test_a_group_is_one_learner_also_after_a_death(groups: Groups, backend: str, collective: str) -> None:
    config = group_config(backend).learners(collective=collective)
    one = config.build_learner()
    group = config.learners(num_learners=2).build_learner_group()
    try:
        for n in range(4):
            if n == 2:
                os.kill(group.foreach_learner(lambda learner: os.getpid())[1], signal.SIGKILL)
            batch = {DEFAULT_MODULE_ID: ppo_batch(63, seed=n)}
            one.update(batch)
            assert len(group.update(batch)) == 2
            assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
        assert group.get_stats()["collective"] == collective
    finally:
        group.shutdown()
