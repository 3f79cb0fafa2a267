"""Running the programs of many learners as one, while their updates take turns.

The updates run in threads, one at a time: each runs until its program must run, then all programs run as one.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plugrad.config import Config
from plugrad.config.fields import config_fields
from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import BatchedProgram, Capability, Program, ProgramCall
from plugrad.learner.update.programs import has_weights_without_optimizer
from plugrad.optimizers import Optimizer
from plugrad.types import ModuleBatches, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

Answer = Callable[[Sequence[Any]], Sequence[Any]]
"""`answer(requests)` gives an answer, or an exception to raise, for each request."""


class Turns:
    """Runs functions side by side, each in its own thread; one thread runs at a time.

    A function runs until it calls `ask`. When all have asked or ended, the requests are answered in the caller's
    thread, and the functions continue. So their order is fixed, and code for a single function needs no change.

    Args:
        answer: see `Answer`.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._here = threading.local()

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions to their ends.

        Args:
            functions: without arguments.

        Returns:
            The return value of each.

        Raises:
            BaseException: the first that a function raised, with its number in a note. The others ran to their ends.
        """
        turns = [_Turn(function, self._here) for function in functions]
        try:
            for turn in turns:
                turn.take()
            while waiting := [turn for turn in turns if turn.is_waiting]:
                for turn, answer in zip(waiting, self._answers(waiting), strict=True):
                    turn.reply = answer
                    turn.take()
        except BaseException as error:  # Ctrl-C: each function sees it where it waits
            _end(turns, error)
            raise
        for number, turn in enumerate(turns):
            if turn.error is not None:
                turn.error.add_note(f"in number {number} of {len(turns)} that are trained together")
                raise turn.error
        return [turn.result for turn in turns]

    def ask(self, request: Any) -> Any:
        """Send a request from a running function, and wait for the answer. Check `is_running` first."""
        turn: _Turn = self._here.turn
        return turn.ask(request)

    @property
    def is_running(self) -> bool:
        """Whether the caller is one of the functions that take turns."""
        return hasattr(self._here, "turn")

    def _answers(self, waiting: Sequence["_Turn"]) -> Sequence[Any]:
        try:
            return self._answer([turn.request for turn in waiting])
        except Exception as error:
            return [error] * len(waiting)


class _Turn:
    """One function in its thread."""

    def __init__(self, function: Callable[[], Any], here: threading.local) -> None:
        self.request: Any = None
        self.reply: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_waiting = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._is_running = False
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, function, here), daemon=True)

    def take(self) -> None:
        """Run until it asks or ends."""
        self._is_running = True
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self.finish_turn()

    def finish_turn(self) -> None:
        """Wait until it has asked or ended, if it runs."""
        if self._is_running:
            self._back.acquire()
            self._is_running = False

    def ask(self, request: Any) -> Any:
        """In its thread: hand the request over and wait."""
        self.request, self.is_waiting = request, True
        self._back.release()
        self._go.acquire()
        reply, self.request, self.reply, self.is_waiting = self.reply, None, None, False
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _run(self, function: Callable[[], Any], here: threading.local) -> None:
        here.turn = self
        try:
            self.result = function()
        except BaseException as error:  # raised in the caller's thread
            self.error = error
        finally:
            self._back.release()


def _end(turns: Sequence[_Turn], error: BaseException) -> None:
    for turn in turns:
        turn.finish_turn()
    while waiting := [turn for turn in turns if turn.is_waiting]:
        for turn in waiting:
            turn.reply = error
            turn.take()


ALONE = "train such runs one after another, each by itself: plugrad train --seed N, or config.build_algo()"
COMPILED = ("auto", "complete_update")


class _Request(NamedTuple):
    """A run of one learner's program, to be combined with others."""

    learner: "Learner"
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
        """By columns, what a traced step reads from its batch: one learner's step is traced for all."""

    def join(self, learner: "Learner") -> None:
        """Make a learner part of the batch.

        Args:
            learner: a built learner; its programs are made again.

        Raises:
            ConfigError: it cannot be part of a batch; says why, and what to type.
        """
        check_learner(learner)
        learner.program_batch = self
        learner.forget_programs()

    def train(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions that update learners of this batch; see `Turns.run`."""
        return self._turns.run(functions)

    def run(
        self,
        learner: "Learner",
        program: Program,
        columns: ModuleBatches,
        indices: Mapping[ModuleID, Tensor],
        num_steps: int,
    ) -> Mapping[str, Tensor]:
        """Run a learner's program together with the others'; alone outside of `train`, or to find bad parameters.

        Args:
            learner: the learner.
            program: the program, whose `together` says how it ran.
            columns: see `Program.run`.
            indices: see `Program.run`.
            num_steps: see `Program.run`.

        Returns:
            See `Program.run`.
        """
        call = ProgramCall(program, columns, indices)
        if learner.names_parameters or not self._turns.is_running:
            return _alone(call, num_steps)
        metrics: Mapping[str, Tensor] = self._turns.ask(_Request(learner, call, num_steps))
        return metrics

    def forget_programs(self) -> None:
        """Discard the batched programs, because something that they took for constant has changed."""
        self._batched.clear()
        self.reads.clear()

    def _answer(self, requests: Sequence[_Request]) -> list[Any]:
        """Run requests of equal shapes together."""
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, each in enumerate(requests):
            shapes = _shapes(each.call.columns), _shapes(each.call.indices)
            groups[each.num_steps, shapes].append(number)
        answers: dict[int, Any] = {}
        for numbers in groups.values():
            found = self._run_group([requests[number] for number in numbers])
            answers |= dict(zip(numbers, found, strict=True))
        return [answers[number] for number in range(len(requests))]

    def _run_group(self, group: Sequence[_Request]) -> Sequence[Any]:
        first, calls = group[0], [each.call for each in group]
        if len(calls) == 1:
            return [_alone(calls[0], first.num_steps)]
        batched = self._batched_program(first)
        # Runs end at different times; fewer batch sizes mean fewer compilations.
        size = min(self._size, 1 << (len(calls) - 1).bit_length())
        filled = [*calls, *[calls[-1]] * (size - len(calls))]
        found = batched.run(filled, first.num_steps)[: len(calls)]
        for each in calls:
            each.program.together = f"; {batched.reason}"
        return found

    def _batched_program(self, request: _Request) -> BatchedProgram:
        columns = tuple(
            (module_id, *sorted(each)) for module_id, each in sorted(request.call.columns.items())
        )
        if columns not in self._batched:
            self._batched[columns] = request.learner._batch_program(request.call.program)
        return self._batched[columns]


def _alone(call: ProgramCall, num_steps: int) -> Mapping[str, Tensor]:
    call.program.together = "; this learner alone"
    return call.program.run(call.columns, call.indices, num_steps)


def _shapes(columns: Mapping[ModuleID, Any]) -> Hashable:
    return tuple(
        (name, _shapes(each) if isinstance(each, Mapping) else (tuple(each.shape), str(each.dtype)))
        for name, each in sorted(columns.items())
    )


def check_configs(configs: Sequence[Config]) -> None:
    """Refuse settings that a batch of learners cannot have.

    Args:
        configs: one for each learner, at least one.

    Raises:
        ConfigError: there is such a setting; names it, and says what to type.
    """
    first = configs[0]
    if first.num_learners:
        raise ConfigError(
            f"num_learners={first.num_learners}: seeds are trained together in this process, without a group of "
            "learners: type .learners(num_learners=0)",
            field="num_learners",
        )
    if first.sharding is not None:
        raise ConfigError(
            f"sharding={first.sharding!r}: many seeds are one program on one device: type .learners(sharding=None)",
            field="sharding",
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


def check_learner(learner: "Learner") -> None:
    """Refuse a learner that cannot be part of a batch.

    Args:
        learner: a built learner.

    Raises:
        ConfigError: it cannot; says why, and what to type.
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
