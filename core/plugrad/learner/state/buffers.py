"""Buffers: what modules keep besides trained parameters, such as statistics of BatchNorm and frozen parameters.

A backend names them (the hook `get_buffers`). They are treated as parameters are: undone after an error, passed through
programs, kept equal on all learners of a group. Built-in networks have none.
"""

import logging
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.batch import Batch
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.learner.update.data_parallel import WEIGHTS
from plugrad.ops import Variable
from plugrad.rng_streams import owner_of
from plugrad.types import ALL_MODULES, COMPONENT_PLUGIN_STATE, Array, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

# --- a plugin's own state: `Learner.register_state`, and variables that a plugin made with `get_tensor_variable` ---
#
# They are kept in `learner.buffers[ALL_MODULES]`, and so are treated as the buffers of modules are: undone after an
# error, passed through programs, equal on all learners of a group.

UNNAMED = "unnamed/"
"""What was made with `get_tensor_variable` is "unnamed/0", "unnamed/1", in the order of making."""

Buffers = dict[ModuleID, dict[str, Variable]]
"""`{module_id: {name: variable}}`, of modules that have buffers; under `ALL_MODULES` the plugins' own state."""

log = logging.getLogger("plugrad")


def with_plugin_variables(buffers: Buffers, own: dict[str, Variable]) -> Buffers:
    """Buffers with these plugins' variables.

    Args:
        buffers: of modules; what it has of plugins is replaced.
        own: `{name: variable}`.

    Returns:
        A new dict.
    """
    modules = {module_id: each for module_id, each in buffers.items() if module_id != ALL_MODULES}
    return {**modules, ALL_MODULES: own} if own else modules


def register(learner: "Learner", name: str, initial: Any, dtype: str | None) -> Variable:
    """See `Learner.register_state`."""
    if not isinstance(name, str) or not 0 < len(name) <= 200 or name.startswith(UNNAMED):
        raise ConfigError(f"register_state: a name is a text of 1 to 200 characters, found {name!r:.80}")
    value = np.asarray(initial)
    if value.dtype.kind not in "biuf":
        raise ConfigError(f"register_state({name!r}): expected a number or an array, found {initial!r:.80}")
    if (present := learner._plugin_variables.get(name)) is not None:
        if learner._initial_plugin_state[name].shape != value.shape:
            has = list(learner._initial_plugin_state[name].shape)
            raise ConfigError(
                f"register_state({name!r}): it is registered with shape {has}, and now with {list(value.shape)}: give "
                "one of the two another name, such as that of your plugin and a slash before it"
            )
        return present
    if learner.metrics.is_in_step:
        raise ConfigError(
            f"register_state({name!r}) in a gradient step, which may be a compiled program: register it before, in "
            "learner_built, and read it here: the same call with this name then gives the variable"
        )
    waiting = learner._restored_plugin_state.get(name)
    variable = learner._get_tensor_variable(initial, dtype)
    _add(learner, name, variable, variable.numpy(), waiting)
    return variable


def _add(learner: "Learner", name: str, variable: Variable, initial: Array, waiting: Array | None) -> None:
    if waiting is not None:
        if waiting.shape != initial.shape:
            raise RestoreMismatchError(
                f"{COMPONENT_PLUGIN_STATE}/{name}: a plugin registers shape {list(initial.shape)}, and the state that "
                f"was loaded has {list(waiting.shape)}",
                mismatched=[f"{COMPONENT_PLUGIN_STATE}/{name}"],
            )
        variable.assign(waiting)
        others = {each: value for each, value in learner._restored_plugin_state.items() if each != name}
        learner._restored_plugin_state = others
    learner._initial_plugin_state = {**learner._initial_plugin_state, name: initial}
    own = {**learner._plugin_variables, name: variable}
    learner.buffers = with_plugin_variables(learner.buffers, own)


def note_made(learner: "Learner", variable: Variable, value: Any) -> None:
    """Remember a variable that `get_tensor_variable` made, without keeping it alive: `keep_made` looks whose it is.

    Args:
        learner: the learner.
        variable: what was made.
        value: its first value.
    """
    if learner.metrics.is_in_step:
        return
    reference: Callable[[], Any]
    try:
        reference = weakref.ref(variable)
    except TypeError:  # a class with slots
        reference = (lambda each: lambda: each)(variable)
    learner._made_variables = [*learner._made_variables, (reference, value)]


def keep_made(learner: "Learner", known: Collection[int]) -> None:
    """Make plugins' variables part of the state: those that still exist and are of no other component.

    Args:
        learner: the learner.
        known: the `id`s of all variables of its state.
    """
    made, learner._made_variables = learner._made_variables, []
    for reference, value in made:
        variable = reference()
        if variable is not None and id(variable) not in known:
            number = sum(name.startswith(UNNAMED) for name in learner._plugin_variables)
            name = f"{UNNAMED}{number}"
            initial = np.asarray(value, variable.numpy().dtype)
            waiting = learner._restored_plugin_state.get(name)
            _add(learner, name, variable, np.array(initial), waiting)


def set_plugin_state(learner: "Learner", state: Mapping[str, Any]) -> None:
    """Load values; those of names that no plugin has registered wait for it.

    Args:
        learner: a built learner.
        state: `{name: array}`, checked.
    """
    own = learner._plugin_variables
    for name, value in state.items():
        if name in own:
            own[name].assign(value)
    waiting = {name: np.array(value) for name, value in state.items() if name not in own}
    if waiting:
        log.info(
            "the state has %s, which no plugin has registered: kept for the one that does",
            ", ".join(f"{COMPONENT_PLUGIN_STATE}/{name}" for name in sorted(waiting)),
        )
    learner._restored_plugin_state = {**learner._restored_plugin_state, **waiting}


def with_new_plugin_state(learner: "Learner", state: Mapping[str, Any], where: Any) -> dict[str, Any]:
    """A whole state of a file with the initial values of what it lacks; a line in the log names them.

    Args:
        learner: the learner that loads it.
        state: of a file; not checked here.
        where: names the file in the log.

    Returns:
        The state with the component.
    """
    saved = state.get(COMPONENT_PLUGIN_STATE, {})
    if not isinstance(saved, Mapping):
        return dict(state)
    missing = {name: each for name, each in learner._initial_plugin_state.items() if name not in saved}
    if missing:
        names: Iterable[str] = (f"{COMPONENT_PLUGIN_STATE}/{name}" for name in sorted(missing))
        log.info("%s has no %s: begins anew", where, ", ".join(names))
    return {**state, COMPONENT_PLUGIN_STATE: {**saved, **missing}}


# --- buffers ---


def find_buffers(learner: "Learner") -> Buffers:
    """The buffers of all modules that the backend can train, under their names in `module.get_state()`.

    Those that plugins registered stay, under `ALL_MODULES`.
    """
    found = {
        module_id: dict(learner._get_buffers(learner.module[module_id]))
        for module_id in learner.trainable_module_ids
    }
    modules = {module_id: each for module_id, each in found.items() if each}
    return with_plugin_variables(modules, learner._plugin_variables)


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


def copy_buffers(learner: "Learner", module_ids: Collection[ModuleID]) -> list[tuple[Variable, Tensor]]:
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


def restore_buffers(learner: "Learner", before: Sequence[tuple[Variable, Tensor]]) -> None:
    """Restore buffers from their copies if the step is not finite. Traced.

    Args:
        learner: in a step.
        before: from `copy_buffers`.
    """
    for variable, old in before:
        variable.assign(learner.guard(variable.read(), old))


@contextmanager
def buffers_unchanged(learner: "Learner") -> Iterator[None]:
    """Restore all buffers afterwards: for a forward pass that must have no effect. Traced."""
    before = [(each, each.snapshot()) for each in buffer_variables(learner.buffers)]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)


# --- learners of a group ---


def average_buffers(learner: "Learner", columns: Batch) -> None:
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
    for name, variable in learner._plugin_variables.items():
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


def fill_missing_buffers(learner: "Learner", weights: Any) -> Any:
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
