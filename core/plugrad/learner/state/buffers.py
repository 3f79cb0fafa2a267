"""Buffers: what modules keep besides trained parameters, such as statistics of BatchNorm and frozen parameters.

A backend names them (the hook `get_buffers`). They are treated as parameters are: undone after an error, passed through
programs, kept equal on all learners of a group. Built-in networks have none.
"""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from plugrad.batch import Batch
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.state.plugin_state import Buffers, owner_of, plugin_variables, with_plugin_variables
from plugrad.learner.update.data_parallel import WEIGHTS
from plugrad.ops import Variable
from plugrad.types import ALL_MODULES, Array, ModuleID, Tensor


def find_buffers(learner: LearnerInternals) -> Buffers:
    """The buffers of all modules that the backend can train, under their names in `module.get_state()`.

    Those that plugins registered stay, under `ALL_MODULES`.
    """
    found = {
        module_id: dict(learner._get_buffers(learner.module[module_id]))
        for module_id in learner.trainable_module_ids
    }
    modules = {module_id: each for module_id, each in found.items() if each}
    return with_plugin_variables(modules, plugin_variables(learner))


def buffer_variables(buffers: Buffers, module_ids: Collection[ModuleID] | None = None) -> list[Variable]:
    """The variables of buffers, in an order that does not depend on the order of the modules.

    Args:
        buffers: of all modules.
        module_ids: only of these modules; None: of all.

    Returns:
        One variable per buffer.
    """
    return [
        variable
        for module_id, each in sorted(buffers.items())
        if module_ids is None or module_id in module_ids
        for variable in each.values()
    ]


# --- a step that must not count ---


def copy_buffers(
    learner: LearnerInternals, module_ids: Collection[ModuleID]
) -> list[tuple[Variable, Tensor]]:
    """Copy the buffers of some modules before a step that may have to be skipped. Traced.

    Args:
        learner: in a step.
        module_ids: of this minibatch.

    Returns:
        `[(variable, copy)]`; empty if the step is never skipped.
    """
    if not learner.buffers or (learner.config.nonfinite != "skip" and not learner.names_parameters):
        return []
    moved = buffer_variables(learner.buffers, [*module_ids, ALL_MODULES])
    return [(each, each.snapshot()) for each in moved]


def restore_buffers(learner: LearnerInternals, before: Sequence[tuple[Variable, Tensor]]) -> None:
    """Restore buffers from their copies if the step is not finite. Traced.

    Args:
        learner: in a step.
        before: from `copy_buffers`.
    """
    for variable, old in before:
        variable.assign(learner.guard(variable.read(), old))


@contextmanager
def buffers_unchanged(learner: LearnerInternals) -> Iterator[None]:
    """Restore all buffers afterwards: for a forward pass that must have no effect. Traced."""
    before = [(each, each.snapshot()) for each in buffer_variables(learner.buffers)]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)


# --- learners of a group ---


def average_buffers(learner: LearnerInternals, columns: Batch) -> None:
    """Make the buffers of all learners of a group equal, after a program.

    Floats become the mean over the learners, weighted by the number of the module's rows that each trained on. All
    other buffers (counters, seeds, masks) become those of learner 0. So does what plugins registered: under a name
    that begins with a module's id and a slash by that module's rows, else by all rows.

    Args:
        learner: alone, or one of a group.
        columns: the batch of this program, with the learner's weights (`plugrad.learner.update.data_parallel`).
    """
    if learner.collective is None or not learner.buffers:
        return
    own = {module_id: dict(each) for module_id, each in learner.buffers.items() if module_id in columns}
    for name, variable in plugin_variables(learner).items():
        owner = owner_of(name, learner.module) or ALL_MODULES
        if owner in (ALL_MODULES, *columns):  # else no loss has moved it
            own.setdefault(owner, {})[f"{ALL_MODULES}/{name}"] = variable
    if not own:
        return
    is_first = learner.collective.rank == 0
    parts: list[Array] = []
    for module_id in sorted(own):
        weight = float(np.mean(columns[WEIGHTS][module_id], dtype=np.float64))
        parts.append(np.array([weight]))
        parts += [_contribution(each.numpy(), weight, is_first) for _, each in sorted(own[module_id].items())]
    total = learner.collective.all_reduce(np.concatenate(parts))
    sums = iter(np.split(total, np.cumsum([len(each) for each in parts])[:-1]))
    for module_id in sorted(own):
        weights = float(next(sums)[0])
        for _, variable in sorted(own[module_id].items()):
            variable.assign(_mean(next(sums), weights, variable.numpy()))


def _contribution(value: Array, weight: float, is_first: bool) -> Array:
    """What one learner adds to a sum, in float64: its value times its weight, or the bytes of learner 0's value."""
    if value.dtype.kind == "f":
        # A learner without rows contributes nothing, whatever it computed with the filler row that it got.
        return weight * value.astype(np.float64).ravel() if weight else np.zeros(value.size)
    taken = np.frombuffer(value.tobytes(), np.uint8).astype(np.float64)
    return taken if is_first else np.zeros_like(taken)


def _mean(total: Array, weights: float, like: Array) -> Array:
    if like.dtype.kind == "f":
        return np.asarray(total / weights, like.dtype).reshape(like.shape)
    return np.frombuffer(total.astype(np.uint8).tobytes(), like.dtype).reshape(like.shape)


# --- states that were saved before buffers were part of them ---


def fill_missing_buffers(learner: LearnerInternals, weights: Any) -> Any:
    """Fill in buffers that saved weights lack with their current values; a warning names them.

    Args:
        learner: the learner that has the buffers.
        weights: `{module_id: {name: array}}` as given by the user; not checked here.

    Returns:
        The weights with all buffers.
    """
    if not isinstance(weights, Mapping) or not learner.buffers:
        return weights
    missing = {
        module_id: {
            name: variable.numpy() for name, variable in own.items() if name not in weights[module_id]
        }
        for module_id, own in learner.buffers.items()
        if isinstance(weights.get(module_id), Mapping)
    }
    names = [f"{module_id}/{name}" for module_id, each in missing.items() for name in each]
    if not names:
        return weights
    warnings.warn(
        f"the state has no values of {', '.join(names)}: they stay as they are. It was saved without them; until "
        "updates have moved them, acting may differ from what was saved",
        stacklevel=3,
    )
    return {module_id: {**each, **missing.get(module_id, {})} for module_id, each in weights.items()}
