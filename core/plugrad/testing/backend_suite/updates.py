"""Whole updates: gradients, optimizers, minibatches, and what happens when something is not finite."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from plugrad.columns import Columns
from plugrad.errors import LossError, NonFiniteError
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.markers import hookimpl
from plugrad.learner import Learner
from plugrad.optimizers import SGD
from plugrad.testing.fixtures import REFERENCE, declares, requires
from plugrad.testing.tiny_learners import (
    ActorCriticLearner,
    GradientRecorder,
    digest,
    tiny_batch,
    tiny_config,
    tiny_learner,
    weights_of,
)
from plugrad.types import ALL_MODULES, DEFAULT_MODULE_ID, Array, ModuleID, Tensor

P = DEFAULT_MODULE_ID
OPTIMIZERS: dict[str, dict[str, Any]] = {
    # Large epsilons: one that stands inside the root, or that is left out, is seen after one step.
    "adam": {"type": "adam", "eps": 1e-2},
    "adam without averages": {"type": "adam", "beta1": 0.0, "beta2": 0.0, "eps": 1e-2},
    "adamw": {"type": "adamw", "eps": 1e-2, "weight_decay": 0.1},
    "sgd": {"type": "sgd"},
    "sgd with momentum": {"type": "sgd", "momentum": 0.9},
    "sgd by nesterov": {"type": "sgd", "momentum": 0.9, "nesterov": True},
    "rmsprop": {"type": "rmsprop", "eps": 1e-2, "momentum": 0.5},
}


def _gradients(learner: Learner, scale: float = 1.0, seed: int = 0) -> dict[str, Array]:
    """`{param ref: array}` for all parameters, of different sizes."""
    rng = np.random.default_rng(seed)
    return {
        f"{P}/{name}": (scale * rng.normal(size=weight.shape)).astype(np.float32)
        for name, weight in learner.get_weights()[P].items()
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_the_formula(backend: str, name: str) -> None:
    """Weights and slots after each of five steps are the reference's, for gradients of very different sizes."""
    pair = [tiny_learner(each, optimizer=OPTIMIZERS[name], lr=0.1) for each in (backend, REFERENCE)]
    for step in range(5):
        for learner in pair:
            gradients = _gradients(learner, scale=10.0 ** (step - 3), seed=step)
            learner.apply_gradients(learner._convert_batch_type(gradients))
        found, expected = (each.get_state(["rl_module", "optimizer"]) for each in pair)
        _check_equal(found, expected, f"step {step + 1} of {name}")


def _check_equal(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for key, value in expected.items():
            _check_equal(found[key], value, f"{where}: {key}")
    else:
        np.testing.assert_allclose(
            found, expected, rtol=2e-5, atol=1e-6, err_msg=f"{where} is not the formula's"
        )


CLIPS = [("value", 0.75), ("norm", 1.0), ("global_norm", 5.0), ("global_norm", 1e3), ("global_norm", None)]


@pytest.mark.parametrize("scale", [1.0, 1e-7, 0.0])
@pytest.mark.parametrize(("by", "limit"), CLIPS)
def test_clipped_gradients_are_those_of_the_formula(
    backend: str, by: str, limit: float | None, scale: float
) -> None:
    """Both bounds of a value clip; norms plus 1e-6 where they divide, which tiny norms show; and the norm itself."""
    learner = tiny_learner(backend)
    raw = _gradients(learner, scale)
    limit = None if limit is None else limit * (scale or 1.0)
    clip = learner._get_clip_function()
    found, norm = clip(learner._convert_batch_type(raw), grad_clip=limit, grad_clip_by=by)
    total = np.sqrt(sum(np.sum(np.square(each, dtype=np.float64)) for each in raw.values()))
    np.testing.assert_allclose(
        learner._convert_to_numpy(norm), total, rtol=1e-5, err_msg="the norm before clipping"
    )
    for ref, gradient in raw.items():
        expected = _clipped(gradient.astype(np.float64), by, limit, total)
        got = learner._convert_to_numpy(found[ref])
        words = f"grad_clip={limit}, by {by!r}: min(1, c / (norm + 1e-6)), or the bounds -c and c"
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7 * scale, err_msg=words)


def _clipped(gradient: Array, by: str, limit: float | None, total: float) -> Array:
    if limit is None:
        return gradient
    if by == "value":
        return gradient.clip(-limit, limit)
    norm = total if by == "global_norm" else float(np.linalg.norm(gradient))
    return np.asarray(gradient * min(1.0, limit / (norm + 1e-6)))


class TwoOptimizers(ActorCriticLearner):
    """One for the policy, one for the values, with learning rates of their own."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """See `AlgorithmSpec.configure_optimizers_for_module`: one for the policy, one for the values."""
        params = self.get_parameters(self.module[module_id])
        for name, rate in (("pi", 0.5), ("vf", 0.25)):
            own = [each for each in params if self.get_param_ref(each).startswith(f"{module_id}/{name}.")]
            self.register_optimizer(
                module_id=module_id, optimizer_name=name, optimizer=SGD(), params=own, lr_or_lr_schedule=rate
            )


def _moved(learner: Learner, gradients: dict[str, Array]) -> dict[str, Array]:
    before = learner.get_weights()[P]
    learner.apply_gradients(learner._convert_batch_type(gradients))
    return {f"{P}/{name}": weight - before[name] for name, weight in learner.get_weights()[P].items()}


@pytest.mark.parametrize("stepped", [("pi", "vf"), ("pi",), ("vf",)])
def test_every_optimizer_with_gradients_steps_and_no_other(backend: str, stepped: tuple[str, ...]) -> None:
    """Two optimizers of one module: each by its own learning rate, and only if there are gradients for it."""
    learner = tiny_learner(backend, TwoOptimizers)
    rates = {"pi": 0.5, "vf": 0.25}
    gradients = {ref: each for ref, each in _gradients(learner).items() if ref.split("/")[1][:2] in stepped}
    for ref, moved in _moved(learner, gradients).items():
        expected = -rates[ref.split("/")[1][:2]] * gradients.get(ref, np.zeros_like(moved))
        words = f"apply_gradients: optimizers {stepped} have gradients; {ref} must move by -lr * gradient"
        np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=1e-6, err_msg=words)


def test_a_learning_rate_is_what_was_set_and_what_steps_go_by(backend: str) -> None:
    """Read back as a float; the next step goes by it; other optimizers keep theirs."""
    learner = tiny_learner(backend, TwoOptimizers)
    first, second = (learner.get_optimizer(P, name) for name in ("pi", "vf"))
    assert [learner._get_optimizer_lr(each) for each in (first, second)] == [0.5, 0.25]
    learner._set_optimizer_lr(first, 0.125)
    assert [learner._get_optimizer_lr(each) for each in (first, second)] == [0.125, 0.25]
    gradients = _gradients(learner)
    for ref, moved in _moved(learner, gradients).items():
        rate = 0.125 if ref.startswith(f"{P}/pi") else 0.25
        np.testing.assert_allclose(moved, -rate * gradients[ref], rtol=1e-4, atol=1e-6, err_msg=ref)
    learner._set_optimizer_lr(first, 0.0)
    frozen = digest({n: w for n, w in learner.get_weights()[P].items() if n.startswith("pi")})
    _moved(learner, gradients)
    assert digest({n: w for n, w in learner.get_weights()[P].items() if n.startswith("pi")}) == frozen


def test_a_native_optimizer_steps_by_the_learning_rate_that_was_set(
    backend: str, backend_info: BackendInfo, native_optimizer: Callable[[Sequence[Any], float], Any]
) -> None:
    """The framework's own gradient descent: all of its parameters go by the rate, also those of its last group."""
    requires(backend_info, Capability.FRAMEWORK_OPTIMIZERS)

    class Native(ActorCriticLearner):
        """With an optimizer of the framework."""

        def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
            """One over all parameters."""
            params = self.get_parameters(self.module[module_id])
            optimizer = native_optimizer(params, 0.5)
            self.register_optimizer(
                module_id=module_id, optimizer=optimizer, params=params, lr_or_lr_schedule=0.5
            )

    learner = tiny_learner(backend, Native)
    learner._set_optimizer_lr(learner.get_optimizer(), 0.125)
    assert learner._get_optimizer_lr(learner.get_optimizer()) == 0.125
    gradients = _gradients(learner)
    for ref, moved in _moved(learner, gradients).items():
        words = f"set_optimizer_lr: the learning rate must be that of every parameter group; {ref} is in one"
        np.testing.assert_allclose(moved, -0.125 * gradients[ref], rtol=1e-4, atol=1e-6, err_msg=words)


def _recorded(backend: str, cls: type[Learner] = ActorCriticLearner) -> dict[str, Array]:
    """The gradients of one step, which is not traced, so that they are values."""
    recorder = GradientRecorder()
    learner = tiny_learner(backend, cls, plugins=[recorder])
    learner._update({P: learner._convert_batch_type(tiny_batch())})
    return recorder.gradients


def test_gradients_of_a_loss_are_the_finite_differences_of_the_reference(backend: str) -> None:
    """Of every parameter, within 1e-5 of the parameter's largest."""
    found, expected = _recorded(backend), _recorded(REFERENCE)
    assert set(found) == set(expected)
    for ref, gradient in expected.items():
        scale = 1e-5 * float(np.abs(gradient).max())
        np.testing.assert_allclose(found[ref], gradient, rtol=0, atol=scale, err_msg=f"the gradient of {ref}")


def test_what_a_loss_gives_beside_itself_comes_back_with_values(backend: str) -> None:
    """`aux` of `differentiate`: a nested dict, list or tuple of tensors and of plain values."""
    learner = tiny_learner(backend)
    columns = learner._convert_batch_type({Columns.OBS: tiny_batch()[Columns.OBS]})

    def loss_fn() -> tuple[dict[ModuleID, Tensor], Any]:
        outputs = learner.module[P].forward_train(columns)
        loss = learner.ops.mean(outputs[Columns.VF_PREDS])
        return {P: loss}, {"values": outputs[Columns.VF_PREDS], "more": [loss, ("words", 3, None)]}

    variables = [each.parameters for each in learner.registered_optimizers.values()]
    losses, aux, _ = learner._differentiate(variables, loss_fn)
    values, loss = learner._convert_to_numpy([aux["values"], aux["more"][0]])
    expected = learner._convert_to_numpy(loss_fn()[1]["values"])
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        [loss, learner._convert_to_numpy(losses[P])], expected.mean(), rtol=0, atol=1e-6
    )
    assert tuple(aux["more"][1]) == ("words", 3, None)


def test_gradients_of_passes_in_bfloat16_are_close(backend: str, backend_info: BackendInfo) -> None:
    """Within 2 percent of float32's in norm, and not the same: something was computed in 8 bits."""
    requires(backend_info, Capability.BFLOAT16)
    found = []
    for precision in ("float32", "bf16"):
        config = tiny_config(backend).framework(backend, precision=precision)
        recorder = GradientRecorder()
        learner = ActorCriticLearner(config=config, plugins=[recorder])
        learner.build()
        learner._update({P: learner._convert_batch_type(tiny_batch())})
        found.append(np.concatenate([np.ravel(each) for each in recorder.gradients.values()]))
        assert {each.dtype for each in recorder.gradients.values()} == {np.dtype(np.float32)}
    exact, close = found
    assert not np.array_equal(close, exact), "the passes were computed in float32"
    assert np.linalg.norm(close - exact) <= 2e-2 * np.linalg.norm(exact)


class DoubledLater(ActorCriticLearner):
    """Doubles the losses when they have been computed."""

    def compute_gradients(self, loss_per_module: dict[ModuleID, Tensor], **kwargs: Any) -> Any:
        """See `GradientSpec.compute_gradients`: of twice the losses."""
        return super().compute_gradients({m: 2.0 * loss for m, loss in loss_per_module.items()}, **kwargs)


def test_losses_that_an_override_changed_are_differentiated(backend: str, backend_info: BackendInfo) -> None:
    """Twice the losses have twice the gradients; or a `LossError` names where losses can be changed."""
    if not declares(backend_info, Capability.CHANGED_LOSSES):
        with pytest.raises(LossError, match="compute_losses"):
            tiny_learner(backend, DoubledLater).update(tiny_batch())
        requires(backend_info, Capability.CHANGED_LOSSES)
    plain = _recorded(backend)
    for ref, gradient in _recorded(backend, DoubledLater).items():
        np.testing.assert_allclose(gradient, 2.0 * plain[ref], rtol=1e-5, atol=1e-7, err_msg=ref)


def _scalar(learner: Learner) -> Callable[[], Tensor]:
    """A function of the learner's present weights that bends in policy and values."""
    ops, batch = learner.ops, learner._convert_batch_type({Columns.OBS: tiny_batch()[Columns.OBS]})

    def scalar() -> Tensor:
        outputs = learner.module[P].forward_train(batch)
        sums = ops.logsumexp(outputs[Columns.ACTION_DIST_INPUTS], axis=-1)
        return ops.mean(ops.square(sums) + ops.square(outputs[Columns.VF_PREDS] - 1.0))

    return scalar


def test_derivatives_along_a_vector_are_those_of_finite_differences(
    backend: str, backend_info: BackendInfo
) -> None:
    """`jvp`, and the gradient and product of `hvp`, of all parameters and of some of them; nothing is trained by it."""
    requires(backend_info, Capability.SECOND_DERIVATIVES)
    pair = [tiny_learner(each) for each in (backend, REFERENCE)]
    vectors = {ref.removeprefix(f"{P}/"): each for ref, each in _gradients(pair[0]).items()}
    before = weights_of(pair[0])
    for some in (vectors, {name: each for name, each in vectors.items() if name.startswith("pi.")}):
        found, expected = (
            each._convert_to_numpy([*each.jvp(P, _scalar(each), some), *each.hvp(P, _scalar(each), some)])
            for each in pair
        )
        for n, what in enumerate(("value", "jvp", "gradient of hvp", "hvp")):
            names = some if n > 1 else [None]
            for name in names:
                got, want = ((each[n] if name is None else each[n][name]) for each in (found, expected))
                assert np.shape(got) == np.shape(want)
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=f"{what} {name}")
    np.testing.assert_array_equal(weights_of(pair[0]), before)


class Tripled:
    """Three times the loss."""

    @hookimpl(wrapper=True)
    def compute_losses(self) -> Generator[None, Any, dict[str, Any]]:
        """Once per step, or once per trace."""
        losses = yield
        return {module_id: 3.0 * loss for module_id, loss in losses.items()}


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
