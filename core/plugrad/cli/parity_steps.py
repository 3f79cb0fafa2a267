"""Takes the same steps on two backends and compares what each step computes.

A plugin that wraps the hooks of a step records it.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrad.batch import Batch, Rows
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.learner import Learner
from plugrad.learner.update.step_columns import as_one_minibatch
from plugrad.results import flatten
from plugrad.types import Array, ModuleID

Stages = dict[str, dict[str, Array]]
"""What a step computes: `{stage: {name: array}}`, in order."""
FORWARD, LOSSES, GRADIENTS = "forward", "losses", "gradients"
APPLIED, PARAMETERS = "applied gradients", "parameters"
_RELATIVE = (GRADIENTS, APPLIED)
"""Stages whose differences are relative to their largest entry, however small; in the others at least to 1."""


class Observer:
    """A listener that records the gradients of an uncompiled step.

    It has nothing inside of a loss: under autograd a backend need not give values.

    Attributes:
        gradients: of the last step, by stage.
    """

    def __init__(self) -> None:
        self.gradients: Stages = {}

    @hookimpl(wrapper=True)
    def postprocess_gradients(
        self, learner: LearnerProtocol, gradients_dict: Mapping[str, Any]
    ) -> Generator[None, Any, Any]:
        """Record the gradients before and after all postprocessing. See `LearnerSpec.postprocess_gradients`."""
        before = _arrays(learner, gradients_dict)
        gradients = yield
        self.gradients = {GRADIENTS: before, APPLIED: _arrays(learner, gradients)}
        return gradients


@dataclass(frozen=True)
class Difference:
    """The largest difference between two backends in a stage of a step.

    Attributes:
        step: from 1; 0 is before the first step.
        stage: the stage.
        name: module and column, module, or parameter.
        index: of the entry.
        values: of the entry, on both backends.
        difference: absolute difference over the largest entry of the stage; infinite where names or shapes differ.
    """

    step: int
    stage: str
    name: str
    index: tuple[int, ...]
    values: tuple[float | None, float | None]
    difference: float


@dataclass(frozen=True)
class Comparison:
    """The differences between two backends.

    Attributes:
        backends: their names.
        rows: rows per minibatch.
        tolerance: the largest difference that counts as equal.
        steps: the largest difference per stage for each step, beginning with the parameters before the first.
        parting: the first difference above the tolerance, or None.
    """

    backends: tuple[str, str]
    rows: int
    tolerance: float
    steps: list[dict[str, Difference]]
    parting: Difference | None

    @property
    def equal(self) -> bool:
        """Whether no difference is above the tolerance."""
        return self.parting is None


def compare(
    config: Any, backends: Sequence[str], batch: Batch, *, num_steps: int, tolerance: float
) -> Comparison:
    """Take the same steps on both backends, from the weights that each draws by the config's seed.

    Args:
        config: an `AlgorithmConfig`.
        backends: two names.
        batch: `{module_id: {column: array [B, ...]}}`.
        num_steps: minibatches of `config.minibatch_size` rows (or sequences), in the batch's order and cyclic.
        tolerance: see `Comparison`.

    Returns:
        The differences.
    """
    one, other = backends
    rows = config.minibatch_size or max(len(next(iter(each.values()))) for each in batch.values())
    runs = [_stages(config.framework(name, compile="none"), batch, rows, num_steps) for name in backends]
    steps = [
        {stage: _largest(n, stage, mine[stage], theirs.get(stage, {})) for stage in mine}
        for n, (mine, theirs) in enumerate(zip(*runs, strict=True))
    ]
    differences = (each for step in steps for each in step.values())
    parting = next((each for each in differences if not each.difference <= tolerance), None)
    return Comparison((one, other), rows, tolerance, steps, parting)


def _stages(config: Any, batch: Batch, rows: int, num_steps: int) -> Iterator[Stages]:
    observer = Observer()
    learner: Learner = config.get_learner_class()(config=config, plugins=[observer])
    learner.build()
    yield {PARAMETERS: _by_path(learner.get_weights())}
    for n in range(num_steps):
        fwd_out, losses, _ = learner._update(_minibatch(learner, batch, n * rows, rows))
        computed = {FORWARD: _arrays(learner, fwd_out), LOSSES: _arrays(learner, losses)}
        yield {**computed, **observer.gradients, PARAMETERS: _by_path(learner.get_weights())}


def _arrays(learner: LearnerProtocol, tensors: Mapping[str, Any]) -> dict[str, Array]:
    arrays: dict[str, Array] = learner._convert_to_numpy(_by_path(tensors))
    return arrays


def _by_path(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in flatten(tree).items() if value is not None}


def _minibatch(learner: Learner, batch: Batch, start: int, number: int) -> dict[ModuleID, Rows]:
    where = np.arange(start, start + number)
    taken = {
        module_id: {name: np.take(values, where, axis=0, mode="wrap") for name, values in columns.items()}
        for module_id, columns in batch.items()
    }
    tensors = learner._convert_batch_type(as_one_minibatch(learner, taken))
    return {
        module_id: Rows(module_id, columns, lambda tensor: tensor) for module_id, columns in tensors.items()
    }


def _largest(step: int, stage: str, mine: Mapping[str, Array], theirs: Mapping[str, Array]) -> Difference:
    """The largest difference among the tensors of a stage."""
    sizes = [float(np.nanmax(np.abs(each), initial=0.0)) for each in (*mine.values(), *theirs.values())]
    scale = max(0.0 if stage in _RELATIVE else 1.0, *sizes) or 1.0
    names = dict.fromkeys((*mine, *theirs))
    found = [_between(step, stage, name, mine.get(name), theirs.get(name), scale) for name in names]
    return max(found, key=lambda each: each.difference)


def _between(
    step: int, stage: str, name: str, mine: Array | None, theirs: Array | None, scale: float
) -> Difference:
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return Difference(step, stage, name, (), (None, None), float("inf"))
    distance = np.abs(np.asarray(mine, np.float64) - theirs) / scale
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
    index = (
        tuple(int(n) for n in np.unravel_index(distance.argmax(), distance.shape)) if distance.size else ()
    )
    values = (float(mine[index]), float(theirs[index])) if distance.size else (None, None)
    return Difference(step, stage, name, index, values, float(distance.max(initial=0.0)))
