"""Two learners are one for IMPALA and APPO: whole sequences are shared, and target networks move alike."""

import pytest
from learning import largest_difference
from vtrace_learners import CONFIGS, LENGTHS, config, episodes_for

from plugrad import DEFAULT_MODULE_ID
from plugrad.learner.state.state import digest as digest_of

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.cross_product]


@pytest.mark.parametrize("model", ["", "lstm"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_two_learners_are_one_after_20_updates(backend: str, kind: str, model: str) -> None:
    """Minibatches that two learners cannot share evenly, with padding of different length."""
    cut = {"minibatch_size": 9, "num_epochs": 2, "shuffle_batch_per_epoch": True, "train_batch_size": 20}
    made = config(kind, backend, model=model, compile="auto", **cut)
    one = made.build_learner()
    start = one.get_weights()
    group = made.learners(num_learners=2, num_cpus_per_learner=0.1, timeout_s=60).build_learner_group()
    try:
        for n in range(20):
            episodes = episodes_for(one, LENGTHS[n % 3 :], seed=n)
            expected = one.update(episodes=episodes)[DEFAULT_MODULE_ID]
            for found in group.update(episodes=episodes):
                for name in ("total_loss", "mean_rho"):
                    assert found[DEFAULT_MODULE_ID][name] == pytest.approx(expected[name], rel=1e-4, abs=1e-5)
        assert len(set(group.foreach_learner(digest_of))) == 1
        state = group.get_state()["learner"]
        parts = ["rl_module", "targets", "optimizer"]
        parts = [each for each in parts if each in state]
        assert largest_difference({name: state[name] for name in parts}, one.get_state(parts)) < 1e-5
        assert largest_difference(one.get_weights(), start) > 1e-3
    finally:
        group.shutdown()
