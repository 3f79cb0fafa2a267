"""The programs of many learners as one: what they may differ in, and who runs together."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from plugrad.config import Config
from plugrad.config.fields import config_fields
from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import BatchedProgram, Capability, Program, ProgramCall
from plugrad.learner.components import has_weights_without_optimizer
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.turns import Turns
from plugrad.optimizers import Optimizer
from plugrad.types import ModuleBatches, ModuleID, Tensor

ALONE = "train such runs one after another, each by itself: plugrad train --seed N, or config.build_algo()"
COMPILED = ("auto", "complete_update")


class _Request(NamedTuple):
    """A run of one learner's program that shall be part of one of many."""

    learner: LearnerInternals
    key: Hashable
    call: ProgramCall
    num_steps: int


class ProgramBatch:
    """Runs the programs of many learners as one, while their updates take turns.

    Args:
        size: the number of learners.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._turns = Turns(self._answer)
        self._batched: dict[Hashable, BatchedProgram] = {}
        self.reads: defaultdict[Hashable, set[tuple[ModuleID, str]]] = defaultdict(set)
        """By key, what a traced step reads of its batch: one learner's step is traced for all."""

    def join(self, learner: LearnerInternals) -> None:
        """Make a learner part of the batch.

        Args:
            learner: a built learner, whose programs are made anew.

        Raises:
            ConfigError: it cannot be part of one; says why, and what to type.
        """
        check_learner(learner)
        learner.program_batch = self
        learner.forget_programs()

    def train(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions that update learners of this batch; see `Turns.run`."""
        return self._turns.run(functions)

    def run(
        self,
        learner: LearnerInternals,
        key: Hashable,
        program: Program,
        columns: ModuleBatches,
        indices: Mapping[ModuleID, Tensor],
        num_steps: int,
    ) -> tuple[Mapping[str, Tensor], str]:
        """Run a learner's program together with those of the others; outside of `train`, and for values, alone.

        Args:
            learner: whose program it is.
            key: equal for programs of equal steps.
            program: the program.
            columns: see `Program.run`.
            indices: see `Program.run`.
            num_steps: see `Program.run`.

        Returns:
            What `Program.run` returns, and how the learners were run, in words.
        """
        if learner.names_parameters or not self._turns.is_running:
            return program.run(columns, indices, num_steps), "this learner alone"
        call = ProgramCall(program, columns, indices)
        found: tuple[Mapping[str, Tensor], str] = self._turns.ask(_Request(learner, key, call, num_steps))
        return found

    def forget_programs(self) -> None:
        """Have the programs made anew: something that they took for constant has changed."""
        self._batched.clear()
        self.reads.clear()

    def _answer(self, requests: Sequence[_Request]) -> list[Any]:
        """Run those of equal steps and shapes together."""
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, each in enumerate(requests):
            groups[each.key, each.num_steps, _shapes(each.call.columns), _shapes(each.call.indices)].append(
                number
            )
        answers: dict[int, Any] = {}
        for numbers in groups.values():
            found, words = self._run_group([requests[number] for number in numbers])
            answers |= {number: (each, words) for number, each in zip(numbers, found, strict=True)}
        return [answers[number] for number in range(len(requests))]

    def _run_group(self, group: Sequence[_Request]) -> tuple[Sequence[Any], str]:
        first, calls = group[0], [each.call for each in group]
        if len(calls) == 1:
            only = calls[0]
            return [only.program.run(only.columns, only.indices, first.num_steps)], "this learner alone"
        if first.key not in self._batched:
            self._batched[first.key] = first.learner._batch_program(first.call.program)
        batched = self._batched[first.key]
        # Runs end at different times: few sizes mean few compilations.
        size = min(self._size, 1 << (len(calls) - 1).bit_length())
        filled = [*calls, *[calls[-1]] * (size - len(calls))]
        return batched.run(filled, first.num_steps)[: len(calls)], batched.reason


def _shapes(columns: Mapping[ModuleID, Any]) -> Hashable:
    return tuple(
        (name, _shapes(each) if isinstance(each, Mapping) else (tuple(each.shape), str(each.dtype)))
        for name, each in sorted(columns.items())
    )


def check_configs(configs: Sequence[Config]) -> None:
    """Refuse settings that no batch of learners can have.

    Args:
        configs: one for each learner, at least one.

    Raises:
        ConfigError: names the setting, and says what to type.
    """
    first = configs[0]
    if first.num_learners:
        raise ConfigError(
            f"num_learners={first.num_learners}: seeds are trained together in this process, without a group of "
            "learners: type .learners(num_learners=0)",
            field="num_learners",
        )
    if first.compile not in COMPILED:
        raise ConfigError(
            f"compile={first.compile!r}: many seeds are one compiled program: type .framework({first.backend!r}, "
            "compile='auto')",
            field="compile",
        )
    for other in configs[1:]:
        _check_alike(first, other)


def _check_alike(first: Config, other: Config) -> None:
    if type(first) is not type(other):
        raise ConfigError(
            f"configs of {type(first).__name__} and {type(other).__name__}: those that are trained together are of one "
            "algorithm"
        )
    for name, info in config_fields(type(first)).items():
        values = getattr(first, name), getattr(other, name)
        is_input = (info.schedulable or info.variable) and None not in values
        if name not in ("seed", "lr", "output") and not is_input and not _equal(*values):
            raise ConfigError(
                f"{name}={values[0]!r} and {name}={values[1]!r}: those that are trained together differ in seed, "
                f"learning rate and coefficients alone; {ALONE}",
                field=name,
            )


def _equal(one: Any, other: Any) -> bool:
    return one is other or bool(np.all(one == other))


def check_learner(learner: LearnerInternals) -> None:
    """Refuse a learner that cannot be part of a batch.

    Args:
        learner: a built learner.

    Raises:
        ConfigError: says why, and what to type.
    """
    if reason := learner.backend_info.why_not(Capability.BATCHED_LEARNERS, learner.ops, learner.config):
        raise ConfigError(
            f"many seeds as one program: {reason}; take a backend that has it (docs/many-seeds.md), or {ALONE}"
        )
    for name, each in learner.registered_optimizers.items():
        if not isinstance(each.optimizer, Optimizer):
            raise ConfigError(
                f"many seeds as one program: optimizer {name!r} is a {type(each.optimizer).__name__} of the framework; "
                f"take one of plugrad.optimizers, or {ALONE}"
            )
    for module_id in learner.trainable_module_ids:
        if has_weights_without_optimizer(learner, module_id):
            raise ConfigError(
                f"many seeds as one program: module {module_id!r} has weights that no optimizer steps, and a program "
                f"has them as constants; {ALONE}",
                module_id=module_id,
            )
