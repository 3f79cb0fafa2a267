"""States and checkpoints: copies, exact, and at home on every backend."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugrad.errors import RestoreMismatchError
from plugrad.learner import Learner
from plugrad.testing.fixtures import REFERENCE
from plugrad.testing.tiny_learners import (
    ActorCriticLearner,
    digest,
    flat,
    tiny_batch,
    tiny_learner,
    weights_of,
)

SETTINGS: dict[str, Any] = {"shuffle_batch_per_epoch": True, "num_epochs": 2, "grad_clip": 0.5}


def _trained(backend: str) -> Learner:
    """One with moments: it was updated once."""
    learner = tiny_learner(backend, **SETTINGS)
    learner.update(tiny_batch())
    return learner


def test_a_state_round_trips_and_is_a_copy(backend: str) -> None:
    """Weights, slots, learning rates, counters and random streams come back to the bit, after further training."""
    learner = _trained(backend)
    state = learner.get_state()
    before = digest(state)
    learner.update(tiny_batch(seed=1))
    after = digest(learner.get_state())
    assert digest(state) == before != after, "get_state() is a view of live buffers"
    learner.set_state(state)
    assert digest(learner.get_state()) == before
    learner.update(tiny_batch(seed=1))
    assert digest(learner.get_state()) == after, "the same update from the same state gave another one"


def test_a_refused_state_changes_nothing(backend: str) -> None:
    """A slot of another shape is found before anything is changed."""
    learner = _trained(backend)
    state, before = learner.get_state(), digest(learner.get_state())
    (optimizer,) = state["optimizer"].values()
    ref = next(iter(optimizer["slots"]["m"]))
    optimizer["slots"]["m"][ref] = np.zeros(99, np.float32)
    with pytest.raises(RestoreMismatchError, match="m"):
        learner.set_state(state)
    assert digest(learner.get_state()) == before


def test_a_checkpoint_goes_on_exactly(backend: str, tmp_path: Path) -> None:
    """Saved and opened again, it trains on as if nothing had happened."""
    learner = _trained(backend)
    learner.save_to_path(tmp_path)
    again: Learner = ActorCriticLearner.from_checkpoint(tmp_path)
    assert digest(again.get_state()) == digest(learner.get_state())
    for each in (learner, again):
        each.update(tiny_batch(seed=1))
    assert digest(again.get_state()) == digest(learner.get_state())


@pytest.mark.parametrize("way", ["from the reference", "to the reference"])
def test_a_state_moves_to_and_from_the_reference(backend: str, tmp_path: Path, way: str) -> None:
    """A checkpoint opens on another backend to the bit, and training goes on with the same numbers."""
    source, target = (REFERENCE, backend) if way.startswith("from") else (backend, REFERENCE)
    learner = _trained(source)
    learner.save_to_path(tmp_path)
    other = ActorCriticLearner.from_checkpoint(tmp_path, backend=target)
    assert _arrays(other) == _arrays(learner)
    for each in (learner, other):
        each.update(tiny_batch(seed=1))
    np.testing.assert_allclose(weights_of(other), weights_of(learner), rtol=0, atol=1e-5)


def _arrays(learner: Learner) -> dict[str, Any]:
    return digest({path: value for path, value in flat(learner.get_state()).items() if "config" not in path})


__all__ = [name for name in dir() if name.startswith("test_")]
