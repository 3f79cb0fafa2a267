"""Optimizers, learning rates and clips: the formulas of `plugrad.optimizers` and `plugrad.gradients`, in numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.learner import Learner
from plugrad.optimizers import SGD
from plugrad.testing.fixtures import REFERENCE, requires
from plugrad.testing.tiny_learners import ActorCriticLearner, digest, tiny_learner
from plugrad.types import DEFAULT_MODULE_ID, Array

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


__all__ = [name for name in dir() if name.startswith("test_")]
