"""Portable code passes on the strict backend: networks, spaces, listeners and modes of updates, from episodes on."""

import gc
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from random_spaces import RandomSpaces

from plugrad import AlgorithmConfig, get_algorithm, hookimpl
from plugrad.hooks.plugin_records import list_plugins
from plugrad.losses import mean_over_rows
from plugrad.testing.tiny_learners import (
    ActorCriticLearner,
    tiny_batch,
    tiny_config,
    tiny_learner,
    weights_of,
)

MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"use_lstm": True, "lstm_cell_size": 2, "max_seq_len": 3},
    "gru": {"use_gru": True, "gru_cell_size": 1, "max_seq_len": 3},
    "one encoder with layer norm": {"vf_share_layers": True, "layer_norm": True, "fcnet_activation": "relu"},
}
SPACES = [
    *(("Discrete", action, "plain") for action in ("MultiDiscrete", "n-d Box", "Dict")),
    ("Tuple", "MultiBinary", "mask"),
]
TINY = {"fcnet_hiddens": [1]}


def _train(env: Any, model: dict[str, Any]) -> dict[str, Any]:
    config: AlgorithmConfig = get_algorithm("ppo")().framework("strict").environment(env).debugging(seed=1)
    config = config.rl_module(model_config={**TINY, **model}).env_runners(num_envs_per_env_runner=2)
    config = config.training(train_batch_size=12, minibatch_size=None, num_epochs=1, use_kl_loss=True)
    algorithm = config.build_algo()
    try:
        results: dict[str, Any] = algorithm.train()
    finally:
        algorithm.stop()
    return results


@pytest.mark.parametrize("cell", SPACES, ids=" to ".join)
def test_every_space_trains(cell: tuple[str, str, str]) -> None:
    results = _train(lambda: RandomSpaces(*cell), {})
    assert np.isfinite(results["learners/default_policy/total_loss"])


@pytest.mark.parametrize("model", MODELS)
def test_every_network_trains(model: str) -> None:
    results = _train(lambda: RandomSpaces("Box", "Discrete", "plain"), MODELS[model])
    assert np.isfinite(results["learners/default_policy/total_loss"])


MODES: dict[str, dict[str, Any]] = {
    "accumulated": {"accumulate": 2},
    "skipped": {"nonfinite": "skip"},
    "two modules": {"modules": ("a", "b")},
    **{f"clipped by {by}": {"grad_clip": 0.1, "grad_clip_by": by} for by in ("value", "norm", "global_norm")},
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_trains_as_on_numpy(mode: str) -> None:
    modules = MODES[mode].get("modules", ())
    weights = []
    for backend in ("strict", "numpy"):
        learner = tiny_learner(backend, **MODES[mode])
        batch: Any = {each: tiny_batch() for each in modules} or tiny_batch()
        learner.update(batch)
        weights.append(np.concatenate([weights_of(learner, each) for each in learner.module]))
    np.testing.assert_allclose(*weights, rtol=0.0, atol=1e-6)


class _PerLearner:
    """A listener that keeps a value for each learner, for as long as the learner lives."""

    def __init__(self) -> None:
        self.seen: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    @hookimpl(wrapper=True)
    def update(self, batch: Any) -> Any:
        gc.set_threshold(1)
        kept = [[n] for n in range(1000)]  # so that garbage is collected here
        return (yield) if kept else None


def test_garbage_that_is_collected_meanwhile_sets_nothing() -> None:
    class Gone:
        def __init__(self) -> None:
            self.itself = self

    listener = _PerLearner()
    thresholds = gc.get_threshold()
    learner = tiny_learner("strict", plugins=[listener])
    gc.set_threshold(0)
    listener.seen[Gone()] = 1
    try:
        learner.update(tiny_batch())
    finally:
        gc.set_threshold(*thresholds)
    assert not listener.seen


LISTENERS = [each.name for each in list_plugins() if each.kind == "plugin" and each.requires is None]


@pytest.mark.parametrize("name", LISTENERS)
def test_every_listener_that_needs_no_extra_is_portable(name: str) -> None:
    config = get_algorithm("ppo")().framework("strict").environment("CartPole-v1").debugging(seed=1)
    config = config.rl_module(model_config=TINY).plugins(name)
    config = config.training(train_batch_size=8, minibatch_size=4, num_epochs=1)
    algorithm = config.build_algo()
    try:
        results = algorithm.train()
    finally:
        algorithm.stop()
    assert np.isfinite(results["learners/default_policy/total_loss"])


SUMS_OVER_AXES: dict[str, Any] = {
    "sum": lambda ops, x, batch: ops.mean(ops.sum(x, axis=(0, 2))),
    "mean, then rows": lambda ops, x, batch: mean_over_rows(ops, ops.mean(x, axis=(2, 0)), batch),
    "largest": lambda ops, x, batch: ops.mean(ops.max(x, axis=(0, 2), keepdims=True)),
    "square": lambda ops, x, batch: ops.mean(ops.var(x, axis=(0, 2))),
}


@pytest.mark.parametrize("name", SUMS_OVER_AXES)
def test_a_reduction_over_several_axes_gives_what_numpy_gives(name: str) -> None:
    class OverAxes:
        @hookimpl(wrapper=True)
        def compute_losses(self, learner: Any, fwd_out: Any, batch: Any) -> Any:
            losses = yield
            ops = learner.ops
            for module_id, outputs in fwd_out.items():
                values = ops.expand_dims(ops.stack([outputs["action_dist_inputs"][:, 0]] * 3, 0), -1)
                losses[module_id] = losses[module_id] + SUMS_OVER_AXES[name](ops, values, batch[module_id])
            return losses

    found = []
    for backend in ("strict", "numpy"):
        learner = tiny_learner(backend, plugins=[OverAxes()])
        learner.update(tiny_batch())
        found.append(weights_of(learner))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6)


kept_learners: list[Any] = []


class _KeepsItsLearner:
    """As a script or a plugin may that looks at it later."""

    def __init__(self) -> None:
        self.learner: Any = None

    @hookimpl(wrapper=True)
    def before_gradient_based_update(self, learner: Any) -> Any:
        self.learner = learner
        return (yield)

    @hookimpl(wrapper=True)
    def compute_losses(self, learner: Any) -> Any:
        return (yield)


def test_a_learner_of_an_authors_class_may_be_kept_in_a_global_and_in_a_listener() -> None:
    class Mine(ActorCriticLearner):
        def _update(self, batch: Any) -> Any:
            return super()._update(batch)

    learner = Mine(config=tiny_config("strict"), plugins=[_KeepsItsLearner()])
    kept_learners.append(learner)
    try:
        learner.build()
        learner.update(tiny_batch())
        results = learner.update(tiny_batch())
    finally:
        kept_learners.clear()
    assert np.isfinite(results["default_policy"]["total_loss"])
