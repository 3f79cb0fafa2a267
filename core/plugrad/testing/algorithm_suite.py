"""Tests of an algorithm: its settings, its loss, its steps on every backend, and whether it learns.

The whole test file of an algorithm's author:

    from plugrad.testing.algorithm_suite import *

`plugrad.testing.fixtures` says how the algorithm gets its name, and which fixtures may say more: `algorithm_config`
(tiny, for losses and steps), `algorithm_batch` (what its loss reads) and `learning_config` (for the tiny task). Tests
of the algorithm's own parts run once. The others run on each installed backend and are compared with the numpy
reference, in float64 by finite differences. Each runs for every `tiny_task`, of discrete and of continuous actions,
that the algorithm takes. `pytest -v` names each test as it begins. The reference computes two losses for each weight
and gradient: the suite prints how many weights there are, and computes the same once for all backends and modes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config import AlgorithmConfig
from plugrad.columns import Columns
from plugrad.hooks.registry import get_algorithm
from plugrad.learner import Learner
from plugrad.learner.update.minibatches import as_one_minibatch
from plugrad.testing.fixtures import REFERENCE, STRICT
from plugrad.testing.tiny_learners import GradientRecorder, ReadColumns, digest, flat
from plugrad.testing.tiny_task import LEARNED, STEPS
from plugrad.types import COMPONENT_PLUGIN_STATE, Array, ModuleID

__all__ = [
    "test_a_checkpoint_goes_on_exactly",
    "test_gradients_are_the_finite_differences_of_the_reference",
    "test_it_is_portable",
    "test_it_learns_a_tiny_task",
    "test_settings_round_trip",
    "test_the_loss_depends_on_all_that_it_reads",
    "test_the_loss_goes_down_on_a_fixed_batch",
    "test_updates_are_those_of_the_reference",
]

Batch = dict[ModuleID, dict[str, Array]]
EXPERIENCE = {
    *(Columns.REWARDS, Columns.TERMINATEDS, Columns.TRUNCATEDS, Columns.NEXT_OBS),
    *(Columns.ACTION_DIST_INPUTS, Columns.ACTION_LOGP, Columns.VF_PREDS),
    *(Columns.STATE_IN, Columns.SEQ_LENS, Columns.LOSS_MASK),
}
"""Columns that are there whatever the algorithm."""
ROUNDING = 1e-6
"""Of the largest gradient: what is smaller is rounding in float32."""


def _learner(config: AlgorithmConfig, *plugins: Any) -> Learner:
    learner = config.get_learner_class()(config=config, plugins=plugins)
    learner.build()
    return learner


def test_settings_round_trip(algorithm: str, algorithm_config: AlgorithmConfig) -> None:
    """As a dict, JSON and TOML, every setting; and a config tells its algorithm by name."""
    cls = get_algorithm(algorithm)
    for config in (cls(), algorithm_config):
        assert config.to_dict()["algorithm"] == algorithm
        _check_settings("a dict", config, cls.from_dict(config.to_dict()))
        _check_settings("JSON", config, cls.from_json(config.to_json()))
        _check_settings("TOML", config, cls.from_toml(config.to_toml()))


def _check_settings(way: str, config: AlgorithmConfig, found: AlgorithmConfig) -> None:
    pairs = {name: (getattr(config, name), getattr(found, name)) for name in config.fields()}
    changed = [
        f"{name} went as {one!r}, came as {other!r}" for name, (one, other) in pairs.items() if one != other
    ]
    assert found == config, f"settings do not come back from {way} as they were: {'; '.join(changed)}"


def _step(config: AlgorithmConfig, batch: Batch) -> tuple[dict[ModuleID, float], dict[str, Array]]:
    """Losses and gradients of one step that is not traced, from the first weights."""
    losses, gradients, _ = _effects(config, batch)
    return losses, gradients


def _effects(
    config: AlgorithmConfig, batch: Batch
) -> tuple[dict[ModuleID, float], dict[str, Array], dict[str, Any]]:
    """Losses and gradients of such a step, and what it left in the plugin's own state."""
    recorder = GradientRecorder()
    learner = _learner(config, recorder)
    _, losses, _ = learner._update(learner._convert_batch_type(as_one_minibatch(learner, batch)))
    numbers = {each: float(loss) for each, loss in learner._convert_to_numpy(losses).items()}
    return numbers, recorder.gradients, learner.get_state(COMPONENT_PLUGIN_STATE)


class _Updates(NamedTuple):
    """Of some updates: what each found, the weights after all of them, the gradients of each step."""

    results: list[dict[ModuleID, Any]]
    weights: dict[str, Array]
    gradients: list[dict[str, Array]]


def _updates(config: AlgorithmConfig, batch: Batch) -> _Updates:
    """Three updates that are not traced, from the first weights."""
    recorder = GradientRecorder()
    learner = _learner(config, recorder)
    results = [learner.update(batch, timesteps=_timesteps(n)) for n in range(3)]
    return _Updates(results, flat(learner.get_weights()), recorder.steps)


def _timesteps(updates_before: int) -> dict[str, int]:
    return {"num_env_steps_sampled_lifetime": 32 * updates_before}


_known: list[tuple[Callable[..., Any], AlgorithmConfig, dict[str, Any], Any]] = []


def _of_reference(compute: Callable[..., Any], config: AlgorithmConfig, batch: Batch) -> Any:
    """`compute(config, batch)` on the reference; the same of another backend or mode is not computed again."""
    config, rows = config.framework(REFERENCE, compile="none"), digest(batch)
    for known, settings, columns, found in _known:
        if (known, settings, columns) == (compute, config, rows):
            return found
    found = compute(config, batch)
    _known.append((compute, config, rows, found))
    return found


def _are_rounding(steps: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Where gradients of the reference are 0 but for rounding, as those of an attention's key bias.

    An optimizer that divides by their size (Adam) makes whole steps of what float32 rounds: no backend agrees there
    with another one, and nobody's loss is wrong. Such an entry is small in some step, or exactly 0 in all of them;
    one that is exactly 0 in some only, as of a unit that rows of one minibatch do not reach, is 0 on every backend.
    """
    small: dict[str, Array] = {}
    reached: dict[str, Array] = {}
    for gradients in steps:
        limit = ROUNDING * max(float(np.abs(each).max(initial=0.0)) for each in gradients.values())
        for ref, gradient in gradients.items():
            small[ref] = small.get(ref, False) | ((gradient != 0) & (np.abs(gradient) <= limit))
            reached[ref] = reached.get(ref, False) | (gradient != 0)
    return {ref: small[ref] | ~reached[ref] for ref in small}


def _check_finite(losses: Mapping[ModuleID, float], backend: str) -> None:
    for module_id, loss in losses.items():
        words = f"the loss of module {module_id!r} is {loss} on {backend!r}: it must be finite"
        assert np.isfinite(loss), words


def test_gradients_are_the_finite_differences_of_the_reference(
    backend: str,
    algorithm_config: AlgorithmConfig,
    algorithm_batch: Batch,
    say_num_weights: Callable[[int], None],
) -> None:
    """The loss is finite, a gradient reaches the weights, and it is the loss's slope in float64 within 1e-5."""
    losses, gradients = _step(algorithm_config, algorithm_batch)
    say_num_weights(sum(each.size for each in gradients.values()))
    expected_losses, expected = _of_reference(_step, algorithm_config, algorithm_batch)
    _check_finite(losses, backend)
    for module_id, loss in losses.items():
        want = expected_losses[module_id]
        words = f"the loss of module {module_id!r} is {loss} on {backend!r} and {want} on the reference"
        assert loss == pytest.approx(want, rel=1e-5, abs=1e-6), words
    assert any(np.any(each) for each in gradients.values()), (
        "no gradient reaches any weight: is all of it stopped?"
    )
    assert gradients.keys() == expected.keys()
    largest = max(float(np.abs(each).max()) for each in expected.values())
    for ref, gradient in expected.items():
        words = f"the gradient of {ref}"
        np.testing.assert_allclose(gradients[ref], gradient, rtol=0, atol=1e-5 * largest, err_msg=words)


@pytest.mark.parametrize("backend", [REFERENCE], scope="session")
def test_the_loss_depends_on_all_that_it_reads(
    algorithm_config: AlgorithmConfig, algorithm_batch: Batch
) -> None:
    """Observations, and every column that it reads, change the loss, its gradients or state; others do not."""
    learner = _learner(algorithm_config)
    watched = {
        each: ReadColumns(columns)
        for each, columns in learner._convert_batch_type(as_one_minibatch(learner, algorithm_batch)).items()
    }
    learner._update(watched)
    before = _effects(algorithm_config, algorithm_batch)
    _check_finite(before[0], REFERENCE)
    for module_id, columns in watched.items():
        for column, values in algorithm_batch[module_id].items():
            where, is_read = f"column {column!r} of module {module_id!r}", column in columns.read
            assert is_read or column not in _needed(algorithm_batch[module_id]), f"{where} is never read"
            changed = {**algorithm_batch[module_id], column: _changed(values)}
            if not np.array_equal(changed[column], values):
                has_changed = not _same(
                    _effects(algorithm_config, {**algorithm_batch, module_id: changed}), before
                )
                words = "is read and changes nothing" if is_read else "is not read and changes something"
                assert has_changed == is_read, f"{where} {words}"


def _needed(columns: Mapping[str, Array]) -> set[str]:
    """What was seen and done, and all that the algorithm itself made of it; the rest is there for whom it may serve."""
    return {each for each in columns if each.split("/")[0] not in EXPERIENCE} | {Columns.OBS, Columns.ACTIONS}


def _changed(values: Array) -> Array:
    """Other values of the same kind: floats moved, booleans turned, indices and the like the other way round."""
    if values.dtype.kind == "b":
        return ~values
    if values.dtype.kind == "f":
        return np.asarray(
            values + np.linspace(0.1, 0.5, values.size, dtype=values.dtype).reshape(values.shape)
        )
    return np.asarray(values.max() + values.min() - values)


def _same(one: Any, other: Any) -> bool:
    (losses, *arrays), (expected, *others) = one, other
    return losses == expected and [*map(digest, arrays)] == [*map(digest, others)]


@pytest.mark.parametrize("backend", [STRICT], scope="session")
def test_it_is_portable(algorithm_config: AlgorithmConfig, algorithm_batch: Batch) -> None:
    """The strict backend, which refuses what not every backend does, updates with it twice, to finite losses."""
    learner = _learner(algorithm_config)
    for n in range(2):
        results = learner.update(algorithm_batch, timesteps=_timesteps(n), num_total_minibatches=1)
        _check_finite({each: results[each]["total_loss"] for each in algorithm_batch}, STRICT)


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_updates_are_those_of_the_reference(
    backend: str, algorithm_config: AlgorithmConfig, algorithm_batch: Batch, mode: str
) -> None:
    """After three updates weights are within 1e-5, traced or not: what Python decides while it is traced is caught.

    Weights whose gradient is 0 but for rounding are not compared.
    """
    expected = _of_reference(_updates, algorithm_config, algorithm_batch)
    learner = _learner(algorithm_config.framework(backend, compile=mode))
    for n, wanted in enumerate(expected.results):
        results = learner.update(algorithm_batch, timesteps=_timesteps(n))
        for module_id in algorithm_batch:
            _check_results(n, learner.update_mode, results[module_id], wanted[module_id])
    rounding = _are_rounding(expected.gradients)
    for name, weights in flat(learner.get_weights()).items():
        words = f"{name} after three updates, {learner.update_mode}"
        compared = np.where(rounding.get(name, False), expected.weights[name], weights)
        np.testing.assert_allclose(compared, expected.weights[name], rtol=0, atol=1e-5, err_msg=words)


def _check_results(
    updates_before: int, mode: str, found: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    frozen = "; before, they were equal: does a Python number change, which a traced loss sees only once?"
    for name, want in expected.items():
        if isinstance(want, float | int):
            words = f"update {updates_before + 1}, {mode!r}: {name} is {found[name]}, on the reference {want}"
            words += frozen if updates_before else ""
            assert found[name] == pytest.approx(want, rel=1e-3, abs=1e-4), words


def test_the_loss_goes_down_on_a_fixed_batch(
    backend: str, algorithm_config: AlgorithmConfig, algorithm_batch: Batch
) -> None:
    """Thirty updates on the same rows: the last loss is below the first, in every module."""
    learner = _learner(algorithm_config)
    losses = [
        {
            each: learner_results["total_loss"]
            for each, learner_results in found.items()
            if each in algorithm_batch
        }
        for found in (learner.update(algorithm_batch) for _ in range(30))
    ]
    for module_id in algorithm_batch:
        first, last = losses[0][module_id], losses[-1][module_id]
        assert last < first, f"module {module_id!r}: the loss went from {first:.4g} to {last:.4g}"


def test_a_checkpoint_goes_on_exactly(
    backend: str, algorithm_config: AlgorithmConfig, tmp_path: Path
) -> None:
    """An Algorithm that is saved and opened again trains on as if nothing had happened, to the bit."""
    algorithm = algorithm_config.build_algo()
    try:
        algorithm.train()
        algorithm.save_to_path(tmp_path)
        # What is an author's code is in no checkpoint's power.
        wrappers = algorithm_config.env_wrappers or None
        again = Algorithm.from_checkpoint(tmp_path, env=algorithm_config.env, env_wrappers=wrappers)
        for each in (algorithm, again):
            each.train()
        states = [digest(each.learner_group.get_weights()) for each in (algorithm, again)]
        again.stop()
        assert states[0] == states[1]
    finally:
        algorithm.stop()


def test_it_learns_a_tiny_task(
    backend: str, learning_config: AlgorithmConfig, progress: Callable[[str], None]
) -> None:
    """On a `tiny_task` its mean return comes from 4 of 8, by chance, to 7, within fifty iterations."""
    algorithm = learning_config.build_algo()
    returns: list[float] = []
    try:
        while len(returns) < 10 and max(returns, default=0.0) < LEARNED:
            for _ in range(5):
                algorithm.train()
            returns.append(algorithm.evaluate(num_episodes=40)["episode_return_mean"])
            progress(
                f"iteration {5 * len(returns)} of 50: mean return {returns[-1]:.2f}, learned from {LEARNED} on"
            )
    finally:
        algorithm.stop()
    words = f"it has not learned to act: of {STEPS}, mean returns after every fifth iteration were {returns}"
    assert returns[-1] >= LEARNED, words
