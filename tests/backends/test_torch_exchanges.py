"""torch hands gradients to a collective as tensors where that takes tensors of their device, else as numpy arrays."""

from typing import Any

import needs
import numpy as np
import pytest
from learning import ppo_batch, ppo_config

from plugrad.collective import Collective, Membership
from plugrad.learner.state.state import digest


class Echo(Collective):
    """The end of learner 0 of two, whose partner always says the same; it keeps what it was given."""

    def __init__(self) -> None:
        super().__init__(Membership(rank=0, size=2, epoch=1, key="", timeout_s=1.0))
        self.given: list[Any] = []

    def contact(self) -> bytes:
        return b""

    def enter(self, contacts: Any) -> None:
        pass

    def close(self) -> None:
        self.leave()

    def sum(self, array: Any) -> Any:
        self.given.append(array)
        return 2 * array


class OfTensors(Echo):
    """It takes torch's tensors, as one on GPUs does."""

    devices = frozenset({"cpu"})


class OfOtherTensors(Echo):
    """It takes tensors that are elsewhere."""

    devices = frozenset({"cuda"})


@pytest.mark.parametrize("mode", ["none", pytest.param("complete_update", marks=pytest.mark.long)])
def test_tensors_reach_a_collective_that_takes_those_of_their_device(mode):
    states = []
    torch = needs.backend("torch")
    for cls, kind in ((Echo, np.ndarray), (OfTensors, torch.Tensor), (OfOtherTensors, np.ndarray)):
        config = ppo_config("torch", lr=0.01, minibatch_size=8)
        learner = config.framework("torch", compile=mode, device="cpu").build_learner()
        learner.collective = cls()
        learner.update(ppo_batch(24))
        assert learner.update_mode.startswith(mode)
        gradients = [
            each for each in learner.collective.given if each.dtype not in (np.float64, torch.float64)
        ]
        assert len(gradients) == 3, "one vector in each of three steps"
        assert all(type(each) is kind for each in gradients)
        assert not any(getattr(each, "requires_grad", False) for each in gradients)
        numbers = [each for each in learner.collective.given if each.dtype in (np.float64, torch.float64)]
        assert all(isinstance(each, np.ndarray) for each in numbers), "metrics and the barrier are numpy's"
        states.append(digest(learner))
    assert len(set(states)) == 1
