"""The program of the strict backend: one step per minibatch, looked at before it counts."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from plugrad.batch import Rows
from plugrad.hooks.backend_spec import Program, Step
from plugrad.testing.strict import recording, refusal
from plugrad.testing.strict.foreign_errors import foreign_errors_refused
from plugrad.testing.strict.mappings import unordered
from plugrad.testing.strict.probe import Probe
from plugrad.testing.strict.refusal import boundary
from plugrad.testing.strict.tensor import StrictTensor, dtype_of, raw
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor


class StrictLoop(Program):
    """One step per minibatch.

    Args:
        step: of the core.
        probe: looks at the first step of each update.
    """

    def __init__(self, step: Step, probe: Probe) -> None:
        super().__init__("none", "the strict backend, one step per minibatch")
        self._step = step
        self._probe = probe

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Tensor]:
        """See `Program.run`.

        Raises:
            PortabilityError: the step relies on what not every backend does.
        """
        with np.errstate(all="ignore"):
            self._probe.check(partial(self._run_step, columns, indices, 0), _shapes(columns, indices))
            metrics = [self._run_step(columns, indices, n) for n in range(num_steps)]
        means = {
            name: np.mean([raw(each[name]) for each in metrics], dtype=np.float32) for name in metrics[0]
        }
        return unordered((name, StrictTensor(mean, "float32")) for name, mean in means.items())

    @boundary
    def _run_step(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], n: int
    ) -> Mapping[str, Tensor]:
        refusal.begin()
        with recording.in_a_step(), foreign_errors_refused():
            metrics = self._step(_minibatch(columns, indices, n))
        refusal.check()
        return metrics


def _shapes(columns: ModuleBatches, indices: Mapping[ModuleID, Any]) -> Any:
    sizes = ((module_id, rows.shape[1]) for module_id, rows in sorted(indices.items()))
    shapes = ((m, name, each.shape[1:]) for m in sorted(columns) for name, each in sorted(columns[m].items()))
    return tuple(sizes), tuple(shapes)


def _minibatch(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], n: int) -> dict[ModuleID, Any]:
    return unordered(
        (module_id, Rows(module_id, columns[module_id], partial(_take, rows=raw(rows)[n])))
        for module_id, rows in indices.items()
    )


def _take(column: StrictTensor, rows: Array) -> StrictTensor:
    return StrictTensor(raw(column)[rows], dtype_of(column))
