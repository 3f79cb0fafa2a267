"""The results of each minibatch of an update, for `reduce_fn=`: the same update, its minibatches run one by one."""

from collections.abc import Callable, Mapping
from typing import Any

from plugrad.hooks.backend_spec import Program
from plugrad.learner import Learner
from plugrad.learner.update.programs import Half, PreparedProgram, Programs
from plugrad.learner.update.run import UpdateRun
from plugrad.metrics import SEPARATOR
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor

Results = dict[ModuleID, dict[str, Any]]


class _OneByOne(Program):
    """A program that keeps the metrics of each minibatch, which the one within it only adds up."""

    def __init__(self, within: Program) -> None:
        super().__init__(within.mode, within.reason, static_shapes=within.static_shapes)
        self._within = within
        self.metrics: list[Mapping[str, Tensor]] = []

    def begin_update(self) -> None:
        """See `Program`."""
        self._within.begin_update()
        self.mode, self.reason = self._within.mode, self._within.reason

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Tensor]:
        """See `Program`."""
        for step in range(num_steps):
            order = {module_id: each[step : step + 1] for module_id, each in indices.items()}
            self.metrics.append(self._within.run(columns, order, 1))
        self.mode, self.reason = self._within.mode, self._within.reason
        own = self.metrics[-num_steps:]
        return {name: sum(each[name] for each in own) / num_steps for name in own[0]}


class _ProgramsOneByOne(Programs):
    program: _OneByOne

    def of(self, columns: Any, *, naming: bool = False, half: Half | None = None) -> PreparedProgram:
        prepared = super().of(columns, naming=naming, half=half)
        if half is not None:  # of a step that a listener takes within this update
            return prepared
        self.program = _OneByOne(prepared.program)
        return _Prepared(self._learner, self.program, prepared.reads)


class _Prepared(PreparedProgram):
    program: _OneByOne

    def means(self, columns: Any, order: Any) -> dict[str, Array]:
        self.program.metrics.clear()
        return super().means(columns, order)


def results_of_minibatches(learner: Learner, update: Callable[[], Results]) -> list[Results]:
    """Run `update` and return what each minibatch reported, beside what the update reported as a whole."""
    learner._check_is_built()
    run, programs = learner._update_run, _ProgramsOneByOne(learner)
    learner._update_run = UpdateRun(learner, programs)
    try:
        results = update()
        metrics = programs.program.metrics
    finally:
        learner._update_run = run
    return [_with(results, learner._convert_to_numpy(each)) for each in metrics]


def _with(results: Results, metrics: Mapping[str, Any]) -> Results:
    mixed = {module_id: dict(values) for module_id, values in results.items()}
    for name, value in metrics.items():
        module_id, key = name.split(SEPARATOR)
        mixed.setdefault(module_id, {})[key] = float(value)
    return mixed
