"""Many learners as one program: each computes what it computes alone."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.learner import Learner
from plugrad.learner.update.batched_programs import ProgramBatch
from plugrad.results import flatten
from plugrad.testing.fixtures import requires
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_learner, weights_of

NUMBERS = (0, 1, 2)
CLOCKS = ("time/",)


def _learners(backend: str) -> list[Learner]:
    """Of different seeds and learning rates; minibatches are drawn at random."""
    settings: dict[str, Any] = {
        "compile": "auto",
        "shuffle_batch_per_epoch": True,
        "num_epochs": 2,
        "grad_clip": 0.1,
    }
    found = [
        tiny_learner(backend, ActorCriticLearner, lr=[[0, 0.01 * (n + 1)], [100, 0.001]], **settings)
        for n in NUMBERS
    ]
    for n, learner in enumerate(found):
        weights = learner.get_weights()
        learner.set_weights(
            {m: {name: each * (1.0 + 0.1 * n) for name, each in own.items()} for m, own in weights.items()}
        )
    return found


def _update(learner: Learner, number: int) -> list[dict[str, float]]:
    """The numbers of three updates, on rows of this learner's own; at the second there are fewer of some learners."""
    return [
        {
            name: float(value)
            for name, value in flatten(
                learner.update(
                    tiny_batch(rows, seed=10 * number + n),
                    timesteps={"num_env_steps_sampled_lifetime": 40 * n},
                )
            ).items()
            if not any(clock in name for clock in CLOCKS)
        }
        for n, rows in enumerate([24, 24 if number else 40, 24])
    ]


def _assert_equal(found: Sequence[dict[str, float]], alone: Sequence[dict[str, float]], words: str) -> None:
    for n, (one, other) in enumerate(zip(found, alone, strict=True)):
        assert one.keys() == other.keys(), words
        for name, value in one.items():
            np.testing.assert_allclose(
                value, other[name], rtol=1e-5, atol=1e-5, err_msg=f"{words}, update {n}: {name}"
            )


def test_learners_in_one_program_are_each_what_they_are_alone(
    backend: str, backend_info: BackendInfo
) -> None:
    """Parameters and metrics, with different weights, learning rates, rows and numbers of them."""
    requires(backend_info, Capability.BATCHED_LEARNERS)
    learners, alone = _learners(backend), _learners(backend)
    batch = ProgramBatch(len(learners))
    for learner in learners:
        batch.join(learner)
    found = batch.train([partial(_update, each, n) for n, each in enumerate(learners)])
    for n, (learner, other) in enumerate(zip(learners, alone, strict=True)):
        words = f"learner {n} of {len(learners)} in mode {learner.update_mode!r}"
        assert "one after another" not in learner.update_mode, f"{words}: they do not run as one program"
        _assert_equal(found[n], _update(other, n), words)
        np.testing.assert_allclose(weights_of(learner), weights_of(other), rtol=0, atol=1e-5, err_msg=words)
