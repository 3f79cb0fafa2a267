"""Two learners are one off-policy and offline: noise, target networks per gradient step, delayed optimizers."""

from typing import Any

import numpy as np
import pytest
from actor_critics import recurrent, sequences, tiny, transitions
from delayed_learning import delayed_batch, delayed_config
from learning import largest_difference
from offline_papers import KINDS as OFFLINE
from offline_papers import tiny as tiny_offline

from plugrad import DEFAULT_MODULE_ID, Columns
from plugrad.learner.state.state import digest as digest_of

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.cross_product(part=5)]

PARTS = ["rl_module", "targets", "optimizer"]
SETTINGS = {"num_epochs": 2, "shuffle_batch_per_epoch": True, "minibatch_size": 9}

WRITTEN_OUT = {"written out": 1, "accumulated": 2}
"""Parts of a minibatch of the algorithm that tests write out by hand."""

RECURRENT = {"sac with a memory": "sac", "dqn with a memory": "dqn"}
GSDE = "sac with noise of the state"


def config_of(kind: str, backend: str, mode: str) -> Any:
    """With minibatches that two learners cannot share evenly."""
    if kind in WRITTEN_OUT:
        return delayed_config(backend, compile=mode, policy_delay=3, accumulate=WRITTEN_OUT[kind], **SETTINGS)
    if kind in RECURRENT:
        return recurrent(RECURRENT[kind], backend, compile=mode, **SETTINGS)
    if kind == GSDE:
        noisy = {"fcnet_hiddens": [4], "action_distribution": "gsde", "log_std_init": -1.0}
        return config_of("sac", backend, mode).rl_module(model_config=noisy)
    make = tiny_offline if kind in OFFLINE else tiny
    return make(kind, backend, compile=mode, **SETTINGS, train_batch_size=20, target_network_update_freq=2)


def batch_of(kind: str, seed: int) -> dict[str, np.ndarray]:
    if kind in WRITTEN_OUT:
        mask = {Columns.LOSS_MASK: np.arange(20) % 4 > 0} if seed % 3 == 2 else {}
        return {**delayed_batch(20, seed=seed), **mask}
    if kind in RECURRENT:
        return sequences(RECURRENT[kind], seed, copies=3)
    return transitions("sac" if kind in (*OFFLINE, GSDE) else kind, 20, seed=seed)


@pytest.mark.cross_product(part=12)
@pytest.mark.parametrize("mode", ["auto", pytest.param("complete_update", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [*WRITTEN_OUT, *RECURRENT, GSDE, "sac", "sac discrete", "td3", "iql", "cql"])
def test_two_learners_are_one_after_50_updates(backend: str, kind: str, mode: str) -> None:
    """250 gradient steps; each minibatch in a new order, its noise too."""
    config = config_of(kind, backend, mode)
    one = config.build_learner()
    start = one.get_weights()
    group = config.learners(num_learners=2, num_cpus_per_learner=0.1, timeout_s=60).build_learner_group()
    try:
        for n in range(50):
            expected = one.update(batch_of(kind, n))[DEFAULT_MODULE_ID]
            for found in group.update(batch_of(kind, n)):
                loss = found[DEFAULT_MODULE_ID]["total_loss"]
                assert loss == pytest.approx(expected["total_loss"], rel=1e-4, abs=1e-5)
        assert len(set(group.foreach_learner(digest_of))) == 1
        state = group.get_state()["learner"]
        assert largest_difference({name: state[name] for name in PARTS}, one.get_state(PARTS)) < 1e-5
        assert largest_difference(one.get_weights(), start) > 1e-3
        assert state["streams"] == one.get_state()["streams"]
    finally:
        group.shutdown()
