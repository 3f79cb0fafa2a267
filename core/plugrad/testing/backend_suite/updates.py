"""Whole updates: gradients, minibatches, programs, and what happens when something is not finite."""

from collections.abc import Generator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from plugrad.columns import Columns
from plugrad.errors import LossError, NonFiniteError
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.markers import hookimpl
from plugrad.learner import Learner
from plugrad.testing.fixtures import REFERENCE, requires
from plugrad.testing.recording import GradientRecorder
from plugrad.testing.tiny_learners import ActorCriticLearner, digest, tiny_batch, tiny_learner, weights_of
from plugrad.types import ALL_MODULES, DEFAULT_MODULE_ID, Array, ModuleID, Tensor

P = DEFAULT_MODULE_ID


def _recorded(backend: str) -> dict[str, Array]:
    """The gradients of one step, which is not traced, so that they are values."""
    recorder = GradientRecorder()
    learner = tiny_learner(backend, plugins=[recorder])
    learner._update({P: learner._convert_batch_type(tiny_batch())})
    return recorder.gradients


def test_gradients_of_a_loss_are_the_finite_differences_of_the_reference(backend: str) -> None:
    """Of every parameter, within 1e-5 of the parameter's largest."""
    found, expected = _recorded(backend), _recorded(REFERENCE)
    assert list(found) == list(expected)
    for ref, gradient in expected.items():
        scale = 1e-5 * float(np.abs(gradient).max())
        np.testing.assert_allclose(found[ref], gradient, rtol=0, atol=scale, err_msg=f"the gradient of {ref}")


class Tripled:
    """Three times the loss."""

    @hookimpl(wrapper=True)
    def compute_losses(self) -> Generator[None, Any, dict[str, Any]]:
        """Once per step, or once per trace."""
        losses = yield
        return {module_id: 3.0 * loss for module_id, loss in losses.items()}


@cache
def _trained(backend: str, mode: str) -> tuple[Learner, list[dict[str, dict[str, Any]]]]:
    """Three updates of other lengths, with a moving learning rate and a wrapped loss."""
    settings: dict[str, Any] = {"num_epochs": 3, "shuffle_batch_per_epoch": True, "grad_clip": 0.5}
    learner = tiny_learner(backend, plugins=[Tripled()], compile=mode, lr=[[0, 0.01], [3, 0.0]], **settings)
    results = []
    for n in range(3):
        timesteps = {"num_env_steps_sampled_lifetime": n}
        results.append(learner.update(tiny_batch(16 + 5 * n, seed=n), timesteps=timesteps))
    return learner, results


@pytest.mark.parametrize("mode", ["none", "auto", "complete_update"])
def test_updates_are_those_of_the_reference(backend: str, backend_info: BackendInfo, mode: str) -> None:
    """Weights within 1e-5 after three updates in every mode; results are means over the minibatches."""
    if mode == "complete_update":
        requires(backend_info, Capability.COMPLETE_UPDATE)
        if _trained(backend, "auto")[0].update_mode.startswith(mode):
            mode = "auto"  # the very same program, which takes long to compile
    (learner, results), (reference, expected) = _trained(backend, mode), _trained(REFERENCE, "none")
    for n, (found, want) in enumerate(zip(results, expected, strict=True), 1):
        for module_id, name, value in _numbers(want):
            words = (
                f"update {n} in mode {learner.update_mode!r}: {name!r} must be the mean over its minibatches"
            )
            assert found[module_id][name] == pytest.approx(value, rel=1e-4, abs=1e-5), words
    words = f"weights after updates in mode {learner.update_mode!r}"
    np.testing.assert_allclose(weights_of(learner), weights_of(reference), rtol=0, atol=1e-5, err_msg=words)


def test_an_update_is_compiled_by_xla(backend: str, backend_info: BackendInfo) -> None:
    """`compile="auto"` leads to XLA, and `learner.update_mode` says so; the numbers are those of the test above."""
    requires(backend_info, Capability.XLA)
    found = _trained(backend, "auto")[0].update_mode
    assert "XLA" in found.replace("without XLA", ""), found


def _numbers(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, float]]:
    """All but times."""
    return [
        (module_id, name, value)
        for module_id, found in results.items()
        for name, value in found.items()
        if not name.startswith("time/")
    ]


def test_modules_are_trained_side_by_side(backend: str) -> None:
    """A module's rows, minibatches, gradients and steps are its own, whoever is trained beside it."""
    both, alone = (tiny_learner(backend, modules=ids) for ids in (("a", "b"), ("a",)))
    batches = {"a": tiny_batch(), "b": tiny_batch(seed=9)}
    both.update(batches)
    alone.update({"a": batches["a"]})
    np.testing.assert_allclose(weights_of(both, "a"), weights_of(alone, "a"), rtol=0, atol=1e-6)
    before = weights_of(both, "b")
    both.update({"a": batches["a"]})
    np.testing.assert_array_equal(weights_of(both, "b"), before)


def test_a_learning_rate_reaches_a_program_that_was_made_before(backend: str) -> None:
    """A schedule at 0 stops the weights; nothing of the rate is frozen in a program."""
    learner = tiny_learner(backend, lr=[[0, 0.1], [10, 0.0]])
    start = weights_of(learner)
    learner.update(tiny_batch(), timesteps={"num_env_steps_sampled_lifetime": 10})
    stopped = weights_of(learner)
    assert not np.array_equal(stopped, start)
    learner.update(tiny_batch(seed=1))
    np.testing.assert_array_equal(weights_of(learner), stopped)


def test_a_wrapper_reaches_the_step(backend: str) -> None:
    """Three times the loss is three times the step of plain gradient descent."""
    settings: dict[str, Any] = {"optimizer": {"type": "sgd"}, "grad_clip": None, "minibatch_size": 16}
    plain, tripled = (tiny_learner(backend, plugins=each, **settings) for each in ((), (Tripled(),)))
    start = weights_of(plain)
    for learner in (plain, tripled):
        learner.update(tiny_batch())
    moved = weights_of(plain) - start
    np.testing.assert_allclose(weights_of(tripled) - start, 3.0 * moved, rtol=1e-3, atol=1e-6)


def test_a_minibatch_that_is_not_finite_is_undone_or_left_out(backend: str) -> None:
    """`raise` puts everything back to the bit; `skip` leaves out that minibatch and counts it."""
    batch = tiny_batch(32)
    batch[Columns.ADVANTAGES][3] = np.nan
    raising = tiny_learner(backend)
    before = digest(raising.get_state())
    with pytest.raises(NonFiniteError, match=Columns.ADVANTAGES):
        raising.update(batch)
    assert digest(raising.get_state()) == before, "an update that failed was not undone"
    skipping, clean = (tiny_learner(backend, nonfinite="skip") for _ in range(2))
    results = skipping.update(batch)
    clean.update({column: values[8:] for column, values in batch.items()})
    assert results[ALL_MODULES]["num_nonfinite_minibatches"] == 1
    np.testing.assert_allclose(weights_of(skipping), weights_of(clean), rtol=0, atol=1e-6)


def test_gradients_alone_are_reduced_to_themselves(backend: str) -> None:
    """A learner alone has nobody to share gradients with."""
    learner = tiny_learner(backend)
    given = {f"{P}/{name}": np.ones_like(weight) for name, weight in learner.get_weights()[P].items()}
    reduced = learner._convert_to_numpy(dict(learner._reduce_gradients(learner._convert_batch_type(given))))
    assert digest({ref: np.asarray(each, np.float32) for ref, each in reduced.items()}) == digest(given)


class WrongBroadcast(ActorCriticLearner):
    """Subtracts targets [B, 1] from values [B]: the mean of [B, B] differences."""

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: Mapping[str, Tensor], fwd_out: Mapping[str, Tensor]
    ) -> Tensor:
        """See `AlgorithmSpec.compute_loss_for_module`: a scalar of pairs of rows."""
        targets = self.ops.reshape(batch[Columns.VALUE_TARGETS], (-1, 1))
        return self.ops.mean(self.ops.square(fwd_out[Columns.VF_PREDS] - targets))


class PairsThatAreMeant(ActorCriticLearner):
    """Compares every value with every target, as it says with [1, B] and [B, 1]."""

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: Mapping[str, Tensor], fwd_out: Mapping[str, Tensor]
    ) -> Tensor:
        """See `AlgorithmSpec.compute_loss_for_module`: a scalar of pairs of rows."""
        values = self.ops.expand_dims(fwd_out[Columns.VF_PREDS], 0)
        targets = self.ops.expand_dims(batch[Columns.VALUE_TARGETS], 1)
        return self.ops.mean(self.ops.square(values - targets))


def test_a_wrong_broadcast_in_a_loss_is_an_error(backend: str) -> None:
    """By `watch_operations`, or by the core's watch over `learner.ops` where the backend does not answer it."""
    learner = tiny_learner(backend, WrongBroadcast)
    start = weights_of(learner)
    with pytest.raises(LossError, match=r"gives \[B, B\]"):
        learner.update(tiny_batch())
    np.testing.assert_array_equal(weights_of(learner), start)


@pytest.mark.parametrize("cls", [ActorCriticLearner, PairsThatAreMeant])
def test_a_loss_without_a_wrong_broadcast_is_left_alone(backend: str, cls: type[Learner]) -> None:
    """And so are pairs of rows that are made of [1, B] and [B, 1]."""
    results = tiny_learner(backend, cls).update(tiny_batch())
    assert np.isfinite(results[P]["total_loss"])


__all__ = [name for name in dir() if name.startswith("test_")]
