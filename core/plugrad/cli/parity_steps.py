"""Two learners that differ in their backend alone, watched while they take the same steps.

What happens within a step is seen by a plugin that wraps its hooks, as anybody's could. Knows no framework.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrad.batch import Batch, Rows
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.learner import Learner
from plugrad.results import flatten
from plugrad.types import Array, ModuleID

Stages = dict[str, dict[str, Array]]
"""`{stage: {name: array}}`, in the order in which they are computed."""
FORWARD, LOSSES, GRADIENTS = "forward", "losses", "gradients"
APPLIED, PARAMETERS = "applied gradients", "parameters"
_RELATIVE = (GRADIENTS, APPLIED)
"""Their size means nothing; the others are rounded as numbers near 1 are."""


class Observer:
    """A plugin that keeps what a step computes; of a step that is not traced."""

    def __init__(self) -> None:
        self.stages: Stages = {}

    def _keep(self, learner: LearnerProtocol, stage: str, tensors: Mapping[str, Any]) -> None:
        # The first of its kind: by finite differences the loss is computed many times over.
        if stage not in self.stages:
            self.stages[stage] = learner._convert_to_numpy(_by_path(tensors))

    @hookimpl(wrapper=True)
    def compute_losses(
        self, learner: LearnerProtocol, fwd_out: Mapping[str, Any]
    ) -> Generator[None, Any, Any]:
        """What the networks gave, and the losses made of it."""
        losses = yield
        self._keep(learner, FORWARD, fwd_out)
        self._keep(learner, LOSSES, losses)
        return losses

    @hookimpl(wrapper=True)
    def postprocess_gradients(
        self, learner: LearnerProtocol, gradients_dict: Mapping[str, Any]
    ) -> Generator[None, Any, Any]:
        """The gradients as they come, and as they are applied: clipped, or whatever a plugin makes of them."""
        self._keep(learner, GRADIENTS, gradients_dict)
        gradients = yield
        self._keep(learner, APPLIED, gradients)
        return gradients


@dataclass(frozen=True)
class Difference:
    """The largest difference of a stage of a step.

    Args:
        step: from 1; 0 is before the first.
        stage: of the step.
        name: module and column, module, or parameter.
        index: of the entry.
        values: of both.
        difference: absolute, over the largest entry of the stage; infinite where one has what the other has not.
    """

    step: int
    stage: str
    name: str
    index: tuple[int, ...]
    values: tuple[float | None, float | None]
    difference: float


@dataclass(frozen=True)
class Compared:
    """What came of it.

    Args:
        backends: both.
        rows: of a minibatch.
        tolerance: up to which they are equal.
        steps: of each step, its stages' largest differences; first of the parameters before any.
        parting: the first difference above the tolerance.
    """

    backends: tuple[str, str]
    rows: int
    tolerance: float
    steps: list[dict[str, Difference]]
    parting: Difference | None

    @property
    def equal(self) -> bool:
        """Whether they never part."""
        return self.parting is None


def compare(
    config: Any, backends: Sequence[str], batch: Batch, *, num_steps: int, tolerance: float
) -> Compared:
    """Take the same steps on both backends, from the weights that each draws by the config's seed.

    Args:
        config: an `AlgorithmConfig`.
        backends: two names.
        batch: `{module_id: {column: array [B, ...]}}`.
        num_steps: minibatches of `config.minibatch_size` rows (or sequences), in the batch's order and cyclic.
        tolerance: see `Difference.difference`.
    """
    one, other = backends
    rows = config.minibatch_size or max(len(next(iter(each.values()))) for each in batch.values())
    runs = [_stages(config.framework(name, compile="none"), batch, rows, num_steps) for name in backends]
    steps = [
        {stage: _largest(n, stage, mine[stage], theirs.get(stage, {})) for stage in mine}
        for n, (mine, theirs) in enumerate(zip(*runs, strict=True))
    ]
    all_of_them = (each for step in steps for each in step.values())
    parting = next((each for each in all_of_them if not each.difference <= tolerance), None)
    return Compared((one, other), rows, tolerance, steps, parting)


def _stages(config: Any, batch: Batch, rows: int, num_steps: int) -> Iterator[Stages]:
    observer = Observer()
    learner: Learner = config.get_learner_class()(config=config, plugins=[observer])
    learner.build()
    yield {PARAMETERS: _by_path(learner.get_weights())}
    for n in range(num_steps):
        observer.stages = {}
        learner._update(_minibatch(learner, batch, n * rows, rows))
        yield {**observer.stages, PARAMETERS: _by_path(learner.get_weights())}


def _by_path(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {path[1:]: value for path, value in flatten(tree, "").items() if value is not None}


def _minibatch(learner: Learner, batch: Batch, start: int, number: int) -> dict[ModuleID, Rows]:
    where = np.arange(start, start + number)
    taken = {
        module_id: {name: np.take(values, where, axis=0, mode="wrap") for name, values in columns.items()}
        for module_id, columns in batch.items()
    }
    tensors = learner._convert_batch_type(taken)
    return {
        module_id: Rows(module_id, columns, lambda tensor: tensor) for module_id, columns in tensors.items()
    }


def _largest(step: int, stage: str, mine: Mapping[str, Array], theirs: Mapping[str, Array]) -> Difference:
    """Of all tensors of a stage."""
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
