"""An exchange that fails in the middle of an update leaves a learner as it was, bit for bit, on every backend."""

from typing import Any

import numpy as np
import pytest
from learning import ppo_batch, ppo_config
from statistics_models import normed

from plugrad import Learner
from plugrad.collective import Collective, Membership
from plugrad.errors import CollectiveError
from plugrad.learner.state.state import digest
from plugrad_ppo import PPOLearner


class Echo(Collective):
    """The end of learner 0 of two, whose partner always says the same; one exchange fails.

    Args:
        fails_at: number of the exchange that fails, from 0; -1: none.
    """

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__(Membership(rank=0, size=2, epoch=1, key="", timeout_s=1.0))
        self.fails_at = fails_at
        self.calls = 0

    def contact(self) -> bytes:
        return b""

    def enter(self, contacts: Any) -> None:
        pass

    def close(self) -> None:
        self.leave()

    def sum(self, array: np.ndarray) -> np.ndarray:
        self.calls += 1
        if self.calls == self.fails_at + 1:
            raise OSError("the cable is cut")
        return 2 * array


def made_learner(backend: str, mode: str, has_buffers: bool) -> Learner:
    settings = {"lr": 0.01, "minibatch_size": 8, "num_epochs": 2, "grad_clip": 0.5}
    config = ppo_config(backend, **settings, shuffle_batch_per_epoch=True)
    config = config.framework(backend, compile=mode, device="cpu")
    learner = PPOLearner(config=config, module=normed(backend, dropout=0.0) if has_buffers else None)
    learner.build()
    learner.collective = Echo()
    return learner


@pytest.mark.parametrize(
    ("mode", "has_buffers"), [("none", False), ("none", True), ("complete_update", True)]
)
def test_a_failed_exchange_changes_nothing_whichever_it_is(backend, mode, has_buffers):
    batch = ppo_batch(24, seed=2)
    learner, smooth = (made_learner(backend, mode, has_buffers) for _ in range(2))
    learner.update(ppo_batch(24, seed=1))  # slots and counters are not those of the beginning
    smooth.set_state(learner.get_state())
    before = digest(learner)
    assert digest(smooth) == before
    smooth.collective = Echo()
    smooth.update(batch)
    exchanges = smooth.collective.calls
    assert exchanges >= 6 + 2, "six steps, metrics, the barrier"
    for number in range(exchanges):
        learner.collective = Echo(fails_at=number)
        with pytest.raises(CollectiveError, match="the cable is cut"):
            learner.update(batch)
        assert digest(learner) == before, f"after exchange {number} of {exchanges} had failed"
        assert learner.collective.calls == number + 1, "a failed collective is not used again"
    learner.collective = Echo()
    learner.update(batch)
    assert digest(learner) == digest(smooth)
