"""An update as a program, in every mode, of one learner and of many; and what `learner.update_mode` says of it."""

import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from types import FrameType
from typing import Any

import numpy as np
import pytest

from plugrad.columns import Columns
from plugrad.hooks.backend_spec import BackendInfo, Capability, Program
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.learner import Learner
from plugrad.learner.update.batched_programs import ProgramBatch
from plugrad.networks import ActorCritic
from plugrad.optimizers import SGD
from plugrad.results import flatten
from plugrad.testing.fixtures import REFERENCE, requires
from plugrad.testing.taking_turns import take_turns
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_learner, weights_of
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID, Tensor

P = DEFAULT_MODULE_ID
MODES = ("none", "forward_train", "complete_update")
"""What can run."""


class WithTarget(ActorCriticLearner):
    """With a target network whose values the loss reads."""

    def get_target_parameters(self, module_id: ModuleID, config: Any = None) -> list[str]:
        """All."""
        return list(self.module[module_id].get_state())

    def compute_loss_for_module(self, **arguments: Any) -> Tensor:
        """See `AlgorithmSpec.compute_loss_for_module`: that of an actor-critic, by values of both networks."""
        batch = dict(arguments.pop("batch"))
        values = self.targets[arguments["module_id"]].forward({Columns.OBS: batch[Columns.OBS]})[
            Columns.VF_PREDS
        ]
        batch[Columns.VALUE_TARGETS] = values + batch[Columns.VALUE_TARGETS]
        return super().compute_loss_for_module(batch=batch, **arguments)


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Count how often Python runs forward passes and losses; compilers of Python see nothing of it."""
    losses = ActorCriticLearner.compute_loss_for_module
    codes = {ActorCritic.forward.__code__: "forward", losses.__code__: "loss"}
    runs: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in codes:
            runs[codes[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield runs
    finally:
        sys.setprofile(before)


@dataclass
class Wrapped:
    """Three times the loss; a target network that follows each gradient step; and what programs gave.

    Attributes:
        metrics: of each run of a program, `{name: array}`.
    """

    metrics: list[dict[str, Array]] = field(default_factory=list)

    @hookimpl(wrapper=True)
    def compute_losses(self) -> Generator[None, Any, dict[str, Any]]:
        """Once per step, or once per trace."""
        losses = yield
        return {module_id: 3.0 * loss for module_id, loss in losses.items()}

    @hookimpl(wrapper=True)
    def apply_gradients(self, learner: Learner) -> Generator[None, Any, None]:
        """The targets are among the variables of the program."""
        yield
        if P in learner.targets:
            learner.targets[P].update(tau=0.5)

    @hookimpl(wrapper=True)
    def compile_update(self, learner: LearnerProtocol) -> Generator[None, Program, Program]:
        """A program that shows what it gave."""
        program = yield
        run = program.run

        def recorded(columns: Any, indices: Any, num_steps: int) -> Mapping[str, Tensor]:
            means = run(columns, indices, num_steps)
            self.metrics.append(learner._convert_to_numpy(dict(means)))
            return means

        program.run = recorded  # type: ignore[method-assign]
        return program


@dataclass
class Trained:
    """What three updates of other lengths left, and then a fourth as long as the third.

    Args:
        results: of the three.
        weights: after them.
        targets: after them.
        metrics: of all programs.
        mode: what ran last, as `learner.update_mode` says.
        runs: how often Python ran what in the fourth.
    """

    results: list[dict[str, dict[str, Any]]]
    weights: Array
    targets: dict[str, Array]
    metrics: list[dict[str, Array]]
    mode: str
    runs: Counter[str]


@cache
def _trained(backend: str, mode: str) -> Trained:
    """With a moving learning rate, a wrapped loss and, where not only forward passes are compiled, a target network."""
    settings: dict[str, Any] = {"num_epochs": 3, "shuffle_batch_per_epoch": True, "grad_clip": 0.5}
    wrapped = Wrapped()
    lr = [[0, 0.01], [3, 0.0]]
    cls = ActorCriticLearner if mode == "forward_train" else WithTarget
    learner = tiny_learner(backend, cls, [wrapped], compile=mode, lr=lr, **settings)
    results = []
    for n in range(3):
        timesteps = {"num_env_steps_sampled_lifetime": n}
        results.append(learner.update(tiny_batch(16 + 5 * n, seed=n), timesteps=timesteps))
    weights = weights_of(learner)
    targets = learner.targets[P].get_state() if P in learner.targets else {}
    with _counted() as runs:
        learner.update(tiny_batch(26, seed=3))
    return Trained(results, weights, targets, wrapped.metrics, learner.update_mode, runs)


def _of_mode(backend: str, info: BackendInfo, mode: str) -> Trained:
    """Skips a mode that is not declared, and gives that of "auto" where it is the same program."""
    if mode == "complete_update":
        requires(info, Capability.COMPLETE_UPDATE)
        if _trained(backend, "auto").mode.startswith(mode):
            mode = "auto"  # the very same program, which takes long to compile
    return _trained(backend, mode)


@pytest.mark.parametrize("mode", ["none", "forward_train", "auto", "complete_update"])
def test_updates_are_those_of_the_reference(backend: str, backend_info: BackendInfo, mode: str) -> None:
    """Weights and target networks within 1e-5 after three updates in every mode; results are means over minibatches."""
    found = _of_mode(backend, backend_info, mode)
    expected = _trained(REFERENCE, mode if mode == "forward_train" else "none")
    for n, (results, want) in enumerate(zip(found.results, expected.results, strict=True), 1):
        for module_id, name, value in _numbers(want):
            words = f"update {n} in mode {found.mode!r}: {name!r} must be the mean over its minibatches"
            assert results[module_id][name] == pytest.approx(value, rel=1e-4, abs=1e-5), words
    words = f"weights after updates in mode {found.mode!r}"
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-5, err_msg=words)
    for name, weight in expected.targets.items():
        words = f"target network after updates in mode {found.mode!r}: {name}"
        np.testing.assert_allclose(found.targets[name], weight, rtol=0, atol=1e-5, err_msg=words)


def _numbers(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, float]]:
    """All but times."""
    return [
        (module_id, name, value)
        for module_id, found in results.items()
        for name, value in found.items()
        if not name.startswith("time/")
    ]


@pytest.mark.parametrize("mode", ["none", "forward_train", "auto", "complete_update"])
def test_a_program_is_what_its_mode_says(backend: str, backend_info: BackendInfo, mode: str) -> None:
    """What is said to be compiled runs no Python of the user's from the second update of a shape on."""
    found = _of_mode(backend, backend_info, mode)
    runs, _, reason = found.mode.partition(": ")
    assert runs in MODES, f"a program's mode is one of {MODES}, found {runs!r}"
    assert reason, "a program says why it runs as it does"
    if mode == "complete_update":
        words = f"'complete_update' is declared, and compile='complete_update' runs as {found.mode!r}"
        assert runs == "complete_update", words
    kept = {"complete_update": ("forward", "loss"), "forward_train": ("forward",), "none": ()}[runs]
    ran = {name: found.runs[name] for name in kept if found.runs[name]}
    assert not ran, f"mode {found.mode!r}: Python ran in the second update of a shape: {ran}"


def test_an_update_is_compiled_by_xla(backend: str, backend_info: BackendInfo) -> None:
    """`compile="auto"` is one program by XLA, and `learner.update_mode` says so; other tests compare its numbers."""
    requires(backend_info, Capability.XLA)
    found = _trained(backend, "auto")
    words = f"'xla' is declared, and compile='auto' runs as {found.mode!r}"
    assert found.mode.startswith("complete_update: "), words
    assert "XLA" in found.mode.replace("without XLA", ""), words
    assert not found.runs, f"{words}: Python ran in the second update of a shape: {found.runs}"


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_metrics_of_a_program_are_float32_scalars(backend: str, mode: str) -> None:
    """Whatever their order: the same names in each run."""
    runs = _trained(backend, mode).metrics
    assert len(runs) == 4
    for metrics in runs:
        assert set(metrics) == set(runs[0])
        for name, value in metrics.items():
            assert (np.shape(value), str(np.asarray(value).dtype)) == ((), "float32"), (
                f"metric {name!r} is {value!r}"
            )


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_two_learners_are_one(backend: str, backend_info: BackendInfo, mode: str) -> None:
    """Each has three or four rows of a minibatch; `reduce_gradients` adds up, in the program, in each step."""
    if mode == "complete_update":
        requires(backend_info, Capability.COMPLETE_UPDATE)
    updates = 1 if mode == "none" else 2  # a program is used again
    settings: dict[str, Any] = {"minibatch_size": 7, "optimizer": {"type": "sgd"}, "lr": 0.1, "compile": mode}
    alone = tiny_learner(backend, **{**settings, "compile": "none"})  # another program would say nothing more
    two = [tiny_learner(backend, **settings) for _ in range(2)]

    def update(learner: Learner) -> None:
        for n in range(updates):
            learner.update(tiny_batch(14, seed=n))

    update(alone)
    exchanges = take_turns(two, update)
    # Of each update: the gradients of two steps, metrics, and a barrier at the end.
    assert exchanges == [4 * updates] * 2, "gradients are exchanged once in each step"
    np.testing.assert_array_equal(weights_of(two[0]), weights_of(two[1]), err_msg="two learners differ")
    words = f"two learners and one, in mode {two[0].update_mode!r}"
    np.testing.assert_allclose(weights_of(two[0]), weights_of(alone), rtol=0, atol=1e-6, err_msg=words)


class PolicyOnly(ActorCriticLearner):
    """Steps the policy; the values are of weights that stay."""

    def configure_optimizers_for_module(self, module_id: ModuleID, config: Any = None) -> None:
        """See `AlgorithmSpec.configure_optimizers_for_module`: one optimizer, of the policy."""
        params = self.get_parameters(self.module[module_id])
        own = [each for each in params if self.get_param_ref(each).startswith(f"{module_id}/pi.")]
        self.register_optimizer(module_id=module_id, optimizer=SGD(), params=own, lr_or_lr_schedule=0.1)
        self.freeze_parameters(module_id, ["vf"])


def test_weights_without_an_optimizer_reach_a_program_that_was_made_before(backend: str) -> None:
    """A program that has them as constants must be made anew when they are set."""
    found = []
    for name in (backend, REFERENCE):
        learner = tiny_learner(name, PolicyOnly, compile="auto" if name == backend else "none")
        learner.update(tiny_batch())
        weights = learner.get_weights()[P]
        learner.set_weights({P: {each: -weight for each, weight in weights.items()}})
        found.append(learner.update(tiny_batch(seed=1))[P]["vf_loss"])
    assert found[0] == pytest.approx(found[1], abs=1e-5), "the values are those of weights that were replaced"


NUMBERS = (0, 1, 2)
CLOCKS = ("time/",)


def _learners(backend: str, mode: str) -> list[Learner]:
    """Of different seeds and learning rates; minibatches are drawn at random."""
    settings: dict[str, Any] = {
        "compile": mode,
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
    # Alone they need no program: `test_updates_are_those_of_the_reference` compares the modes.
    learners, alone = _learners(backend, "auto"), _learners(backend, "none")
    batch = ProgramBatch(len(learners))
    for learner in learners:
        batch.join(learner)
    found = batch.train([partial(_update, each, n) for n, each in enumerate(learners)])
    for n, (learner, other) in enumerate(zip(learners, alone, strict=True)):
        words = f"learner {n} of {len(learners)} in mode {learner.update_mode!r}"
        assert "one after another" not in learner.update_mode, f"{words}: they do not run as one program"
        _assert_equal(found[n], _update(other, n), words)
        np.testing.assert_allclose(weights_of(learner), weights_of(other), rtol=0, atol=1e-5, err_msg=words)


__all__ = [name for name in dir() if name.startswith("test_")]
