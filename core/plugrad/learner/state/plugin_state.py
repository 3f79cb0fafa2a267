"""A plugin's own state: `Learner.register_state`, and variables that a plugin made with `get_tensor_variable`.

They are kept in `learner.buffers[ALL_MODULES]`, and so are treated as the buffers of modules are: undone after an
error, passed through programs, equal on all learners of a group.
"""

import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.learner.internals import LearnerInternals
from plugrad.ops import Variable
from plugrad.types import ALL_MODULES, COMPONENT_PLUGIN_STATE, Array, ModuleID

UNNAMED = "unnamed/"
"""What was made with `get_tensor_variable` is "unnamed/0", "unnamed/1", in the order of making."""

Buffers = dict[ModuleID, dict[str, Variable]]
"""`{module_id: {name: variable}}`, of modules that have buffers; under `ALL_MODULES` the plugins' own state."""

log = logging.getLogger("plugrad")


def plugin_variables(learner: LearnerInternals) -> dict[str, Variable]:
    """`{name: variable}` of all that plugins registered or made."""
    return learner.buffers.get(ALL_MODULES, {})


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


def register(learner: LearnerInternals, name: str, initial: Any, dtype: str | None) -> Variable:
    """See `Learner.register_state`.

    Args:
        learner: with hooks and ops.
        name: see there.
        initial: see there.
        dtype: see there.

    Returns:
        The variable; that of an earlier call with this name.
    """
    if not isinstance(name, str) or not 0 < len(name) <= 200 or name.startswith(UNNAMED):
        raise ConfigError(f"register_state: a name is a text of 1 to 200 characters, found {name!r:.80}")
    value = np.asarray(initial)
    if value.dtype.kind not in "biuf":
        raise ConfigError(f"register_state({name!r}): expected a number or an array, found {initial!r:.80}")
    if (present := plugin_variables(learner).get(name)) is not None:
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


def _add(
    learner: LearnerInternals, name: str, variable: Variable, initial: Array, waiting: Array | None
) -> None:
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
    own = {**plugin_variables(learner), name: variable}
    learner.buffers = with_plugin_variables(learner.buffers, own)


def note_made(learner: LearnerInternals, variable: Variable, value: Any) -> None:
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


def keep_made(learner: LearnerInternals, known: Collection[int]) -> None:
    """Make plugins' variables part of the state: those that still exist and are of no other component.

    Args:
        learner: the learner.
        known: the `id`s of all variables of its state.
    """
    made, learner._made_variables = learner._made_variables, []
    for reference, value in made:
        variable = reference()
        if variable is not None and id(variable) not in known:
            number = sum(name.startswith(UNNAMED) for name in plugin_variables(learner))
            name = f"{UNNAMED}{number}"
            initial = np.asarray(value, variable.numpy().dtype)
            waiting = learner._restored_plugin_state.get(name)
            _add(learner, name, variable, np.array(initial), waiting)


def owner_of(path: str, module_ids: Iterable[ModuleID]) -> ModuleID | None:
    """The module of a path.

    Args:
        path: `<module id>/<name>`, such as the name of a random stream. Both may have slashes.
        module_ids: the possible modules.

    Returns:
        The longest id that fits; None if none does.
    """
    return max((each for each in module_ids if path.startswith(f"{each}/")), key=len, default=None)


def is_array_of_numbers(value: Any) -> bool:
    """Whether something may be the value of a variable."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"


def set_plugin_state(learner: LearnerInternals, state: Mapping[str, Any]) -> None:
    """Load values; those of names that no plugin has registered wait for it.

    Args:
        learner: a built learner.
        state: `{name: array}`, checked.
    """
    own = plugin_variables(learner)
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


def with_new_plugin_state(learner: LearnerInternals, state: Mapping[str, Any], where: Any) -> dict[str, Any]:
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
